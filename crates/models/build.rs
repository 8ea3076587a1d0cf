//! Tells the linker where LibTorch lies, so that nobody needs LD_LIBRARY_PATH.
//!
//! torch-sys links against the folder that `LIBTORCH` (or `LIBTORCH_LIB`) names; a binary also has
//! to find it when it runs. The tests and benches of this crate get the folder as rpath here. The
//! path also goes on as `DEP_PRONY_MODELS_LIBTORCH_LIB` to the build scripts of the crates that
//! depend on this one, because link arguments do not travel with a library.

use std::env;
use std::path::{Path, PathBuf};

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
    println!(
        "cargo:rustc-env=PRONY_LIBTORCH_VERSION={}",
        version(&folder)
    );
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
}

/// LibTorch's version, as its own header says it; `unknown` where there is no such header.
fn version(lib: &Path) -> String {
    let header = lib.join("../include/torch/headeronly/version.h");
    println!("cargo:rerun-if-changed={}", header.display());
    let text = std::fs::read_to_string(header).unwrap_or_default();
    let part = |name: &str| {
        let line = text
            .lines()
            .find(|l| l.split_whitespace().nth(1) == Some(name))?;
        line.split_whitespace().nth(2)
    };
    let parts = ["MAJOR", "MINOR", "PATCH"].map(|p| part(&format!("TORCH_VERSION_{p}")));
    match parts {
        [Some(major), Some(minor), Some(patch)] => format!("{major}.{minor}.{patch}"),
        _ => "unknown".to_owned(),
    }
}
