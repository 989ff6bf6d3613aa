"""The three specifications, sentence by sentence, with the tests that prove each sentence.

Only sentences that demand a behaviour of tables, readers or writers are listed, in the order of the
specification and shortened. Advice for users and descriptions of Apache Hudi's platform are not.
"""
