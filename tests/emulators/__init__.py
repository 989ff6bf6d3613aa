"""Emulators of Azure's and of Google's object store; ``make emulators`` installs them."""
