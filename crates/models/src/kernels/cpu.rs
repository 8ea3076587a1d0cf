//! Which loops this processor can run: the one place that asks.

use std::fmt;
use std::sync::OnceLock;

/// A level of instructions; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 with byte, word and dot-product instructions (VNNI).
    Avx512,
    /// Matrix tiles (AMX) for bf16 and bytes, allowed by the system, and bf16 in AVX-512.
    Amx,
}

impl Isa {
    /// The highest level here; `None` where not even the lowest is.
    pub fn best() -> Option<Self> {
        static BEST: OnceLock<Option<Isa>> = OnceLock::new();
        *BEST.get_or_init(detect)
    }

    /// Every level here, for tests that hold them against each other.
    pub fn all() -> impl Iterator<Item = Self> {
        let best = Self::best();
        [Self::Avx2, Self::Avx512, Self::Amx]
            .into_iter()
            .filter(move |&isa| Some(isa) <= best)
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
        })
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Option<Isa> {
    None
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Option<Isa> {
    use std::is_x86_feature_detected as has;
    if !(has!("avx2") && has!("fma") && has!("f16c")) {
        return None;
    }
    let wide = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
    if !(wide && has!("avx512vnni")) {
        return Some(Isa::Avx2);
    }
    Some(if has!("avx512bf16") && tiles() {
        Isa::Amx
    } else {
        Isa::Avx512
    })
}

/// True where the processor has tiles of bf16 and of bytes, and the system keeps them and lets
/// this process use them.
///
/// Source: Intel's manual, volume 1, chapter 18; Linux, `Documentation/arch/x86/xstate.rst`.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[allow(unsafe_code, reason = "neither question has a safe call")]
fn tiles() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const AMX_BF16: u32 = 1 << 22;
    const AMX_TILE: u32 = 1 << 24;
    const AMX_INT8: u32 = 1 << 25;
    const OSXSAVE: u32 = 1 << 27;
    /// Both parts of the tile state are kept by the system.
    const XCR0_TILES: u64 = 0b11 << 17;
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    let wanted = AMX_BF16 | AMX_TILE | AMX_INT8;
    if __cpuid(1).ecx & OSXSAVE == 0
        || __cpuid(0).eax < 7
        || __cpuid_count(7, 0).edx & wanted != wanted
    {
        return false;
    }
    // SAFETY: OSXSAVE is set, so XGETBV exists.
    if unsafe { xcr0() } & XCR0_TILES != XCR0_TILES {
        return false;
    }
    // SAFETY: asks for a permission of the whole process, for threads started before and after,
    // and touches no memory.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_arch_prctl,
            ARCH_REQ_XCOMP_PERM,
            XFEATURE_XTILEDATA,
        )
    };
    answer == 0
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[target_feature(enable = "xsave")]
#[allow(unsafe_code, reason = "see `tiles`")]
fn xcr0() -> u64 {
    // SAFETY: the register 0 exists wherever XGETBV does.
    unsafe { std::arch::x86_64::_xgetbv(0) }
}

#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn tiles() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_include_those_below() {
        let all: Vec<Isa> = Isa::all().collect();
        assert_eq!(all.last().copied(), Isa::best());
        assert!(all.is_sorted());
    }
}
