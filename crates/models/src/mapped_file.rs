//! A file of weights mapped into memory, read front to back and let go behind the reader.

#![allow(unsafe_code, reason = "mapping a file is unsafe by nature")]

use std::fs::File;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use memmap2::{Mmap, UncheckedAdvice};

use crate::error::ModelError;

/// Fewer bytes than this are not worth a system call, and the next reader may want their page.
const WORTH_LETTING_GO: usize = 16 << 10;

/// Touching a page maps up to this many bytes around it: some that were let go before, and some
/// that are read much later. Unit: bytes (the largest piece in which Linux caches files on x86-64).
const MAPPED_AROUND: usize = 2 << 20;

/// A read-only mapped file; dereferences to its bytes.
pub struct MappedFile {
    path: PathBuf,
    map: Mmap,
}

impl MappedFile {
    /// Maps a file.
    ///
    /// # Errors
    /// [`ModelError::Io`].
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let io = |source| ModelError::Io {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(io)?;
        // SAFETY: the map is read-only. Someone truncating the file under us would raise SIGBUS,
        // as for every program that maps its weights; nothing in this process writes to it.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Ok(Self {
            path: path.to_owned(),
            map,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the memory of bytes that were read back, so that loading does not hold the file and
    /// the weights at once. Reading them again maps them again.
    ///
    /// # Panics
    /// On a range outside the file.
    pub fn let_go(&self, bytes: Range<usize>) {
        assert!(bytes.end <= self.map.len(), "range outside the file");
        if bytes.len() < WORTH_LETTING_GO {
            return;
        }
        let start = bytes.start.saturating_sub(MAPPED_AROUND);
        let end = (bytes.end + MAPPED_AROUND).min(self.map.len());
        // SAFETY: the pages of a shared read-only map come back from the file unchanged. A
        // failure leaves them in memory, which harms nobody.
        let _ = unsafe {
            let advice = UncheckedAdvice::DontNeed;
            self.map.unchecked_advise_range(advice, start, end - start)
        };
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}
