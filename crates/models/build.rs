//! Tells the linker where LibTorch lies, so that nobody needs LD_LIBRARY_PATH.
//!
//! torch-sys links against the folder that `LIBTORCH` (or `LIBTORCH_LIB`) names; a binary also has
//! to find it when it runs. The tests and benches of this crate get the folder as rpath here. The
//! path also goes on as `DEP_PRONY_MODELS_LIBTORCH_LIB` to the build scripts of the crates that
//! depend on this one, because link arguments do not travel with a library.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    println!("cargo:rerun-if-env-changed=LIBTORCH_LIB");
    // The same order as torch-sys 0.24: LIBTORCH_LIB/lib, LIBTORCH/lib, then the system's own.
    let root = env::var_os("LIBTORCH_LIB").or_else(|| env::var_os("LIBTORCH"));
    let folder = root.map_or_else(
        || PathBuf::from("/usr/lib"),
        |r| PathBuf::from(r).join("lib"),
    );
    let folder = folder.canonicalize().unwrap_or(folder);
    println!("cargo:libtorch_lib={}", folder.display());
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
}
