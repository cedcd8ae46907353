"""The invariants of the state modules, checked one by one. A check reads its arrays as untrusted input."""
