//! Shared machinery of the end-to-end tests: find and start the real binaries.
