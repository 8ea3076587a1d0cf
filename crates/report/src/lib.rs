//! Records of runs in; tables and self-contained pages out.
//!
//! Pure: reads and writes data it is handed, asks neither network nor machine.

pub mod error;

pub mod environment;

pub mod number;

pub mod run_record;

pub mod table;

pub mod escape;

pub mod plot;

pub mod charts;

pub(crate) mod page_facts;

pub mod html;

pub use error::ReportError;
