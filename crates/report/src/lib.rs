//! Records of runs in; tables and self-contained pages out.
//!
//! Pure: reads and writes data it is handed, asks neither network nor machine.

pub mod environment;
