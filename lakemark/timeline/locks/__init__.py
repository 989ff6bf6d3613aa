"""The lock of a table.

    table_lock          acquires, renews and releases a lease, with any provider
    lock_provider       the protocol of a provider, and the lock record that a provider stores
    storage_lock        the provider ``storage``
    file_system_lock    the provider ``file_system``
    in_process_lock     the provider ``in_process``
    zookeeper_lock      the provider ``zookeeper``, and zookeeper_session: its requests
    dynamodb_lock       the provider ``dynamodb``
    installed_provider  finds the providers of other packages
    options             the options of a provider
    open_lock           chooses the provider by its name

To add a provider, add a module, a name in ``open_lock.LockProviderName`` and a branch in
``open_lock``. ``tests/contract/test_lock.py`` tests every provider against the protocol.
"""
