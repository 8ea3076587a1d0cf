//! Large arrays of rows: zeroed by the system, page by page when first touched; and one output
//! shared by the pieces of a loop.

#![allow(
    unsafe_code,
    reason = "owns raw memory; the invariants are stated at each block"
)]

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// A type for which all bits zero, as all other bits, are a value.
pub trait Plain: Copy + Send + Sync + 'static {}

/// A fixed array of rows, all lanes 0 at first.
///
/// A `vec![R::ZERO; n]` would write every page at once: a cache with room for many sequences would
/// cost its whole capacity at start instead of what is used. The allocator's zeroed memory is no
/// better once it recycles; fresh pages from the system are zero and cost nothing until touched.
pub struct Rows<R: Plain> {
    /// Invariant: at least `len` rows long. A page is aligned for every row.
    pages: MmapMut,
    len: usize,
    rows: PhantomData<R>,
}

impl<R: Plain> Rows<R> {
    /// `len` rows of zeros.
    ///
    /// # Panics
    /// If the system has no memory for them, as every allocation would.
    pub fn zeros(len: usize) -> Self {
        let bytes = len
            .checked_mul(size_of::<R>())
            .expect("fewer bytes than usize::MAX");
        // A map of no bytes is an error.
        let pages = MmapMut::map_anon(bytes.max(1));
        let pages = pages.unwrap_or_else(|e| panic!("memory allocation of {bytes} bytes: {e}"));
        assert!(
            pages.as_ptr().cast::<R>().is_aligned(),
            "a page is aligned for a row"
        );
        Self {
            pages,
            len,
            rows: PhantomData,
        }
    }
}

impl<R: Plain> Deref for Rows<R> {
    type Target = [R];

    fn deref(&self) -> &[R] {
        // SAFETY: see the invariant; all bits zero, as all other bits, are a valid row.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }
}

impl<R: Plain> DerefMut for Rows<R> {
    fn deref_mut(&mut self) -> &mut [R] {
        // SAFETY: as above; `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len) }
    }
}

/// A slice that the pieces of one loop write to, each its own part.
pub struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: hands out parts only through `part`, whose caller vouches that they do not overlap.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    /// Lends a slice for the time of a loop.
    pub fn new(slice: &'a mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            slice: PhantomData,
        }
    }

    /// The part `start..start + len`.
    ///
    /// # Panics
    /// If it is not inside the slice.
    ///
    /// # Safety
    /// While the part is in use nobody else uses any of it.
    #[expect(clippy::mut_from_ref, reason = "the point of the type; see Safety")]
    pub unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        assert!(
            start.checked_add(len).is_some_and(|end| end <= self.len),
            "part out of bounds"
        );
        // SAFETY: inside the slice by the assertion, exclusive by the caller's word.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }

    /// Pointer to element `index`, for writes narrower than a part.
    ///
    /// # Panics
    /// If it is not inside the slice.
    pub fn at(&self, index: usize) -> *mut T {
        assert!(index < self.len, "index out of bounds");
        // SAFETY: inside the slice.
        unsafe { self.start.add(index) }
    }
}
