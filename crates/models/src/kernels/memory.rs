//! Large arrays of rows: zeroed by the system, page by page when first touched; and one output
//! shared by the pieces of a loop.

#![allow(
    unsafe_code,
    reason = "owns raw memory; the invariants are stated at each block"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::rows::Row;

/// A fixed array of rows, all lanes 0 at first.
///
/// A `vec![R::ZERO; n]` would write every page at once: a cache with room for many sequences would
/// cost its whole capacity at start instead of what is used.
pub struct Rows<R: Row> {
    /// Invariant: `len` rows allocated with `Layout::array`, dangling for 0.
    start: NonNull<R>,
    len: usize,
}

// SAFETY: owns its memory like a Vec, and rows are plain numbers.
unsafe impl<R: Row> Send for Rows<R> {}
// SAFETY: as above; shared access only reads.
unsafe impl<R: Row> Sync for Rows<R> {}

impl<R: Row> Rows<R> {
    /// `len` rows of zeros.
    pub fn zeros(len: usize) -> Self {
        let layout = Layout::array::<R>(len).expect("fewer bytes than isize::MAX");
        if layout.size() == 0 {
            return Self {
                start: NonNull::dangling(),
                len,
            };
        }
        // SAFETY: the size is not 0. All bits zero is a valid row: rows are arrays of numbers.
        let start = unsafe { alloc_zeroed(layout) }.cast::<R>();
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(layout)
        };
        Self { start, len }
    }
}

impl<R: Row> Deref for Rows<R> {
    type Target = [R];

    fn deref(&self) -> &[R] {
        // SAFETY: see the invariant.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<R: Row> DerefMut for Rows<R> {
    fn deref_mut(&mut self) -> &mut [R] {
        // SAFETY: see the invariant; `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<R: Row> Drop for Rows<R> {
    fn drop(&mut self) {
        let layout = Layout::array::<R>(self.len).expect("was valid when allocated");
        if layout.size() != 0 {
            // SAFETY: allocated in `zeros` with this layout.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) }
        }
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
