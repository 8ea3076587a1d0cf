//! Lets the binary find LibTorch where the models crate linked it, without LD_LIBRARY_PATH.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Set by the build script of prony-models; absent when the `torch` feature is off.
    println!("cargo:rerun-if-env-changed=DEP_PRONY_MODELS_LIBTORCH_LIB");
    if let Ok(folder) = env::var("DEP_PRONY_MODELS_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
