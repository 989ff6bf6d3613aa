"""The lock of a table.

    table_lock         acquires, renews and releases a lease; the same for all providers
    lock_provider      the protocol of a provider, and the record that it stores
    storage_lock       the provider ``storage``
    file_system_lock   the provider ``file_system``
    in_process_lock    the provider ``in_process``
    open_lock          chooses the provider by its name

A new provider is a module of its own, a name in ``open_lock.LockProviderName`` and a branch in
``open_lock``. ``tests/contract/test_lock.py`` shows that it keeps the contract.
"""
