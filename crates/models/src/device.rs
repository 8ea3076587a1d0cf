//! Where a model computes and in which number format; what memory that takes.
//!
//! LibTorch's CUDA and ROCm parts are loaded at start when they are there, never linked: one
//! binary serves machines with and without them. Knows no models.

use std::ffi::{CStr, CString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::ModelError;

/// Number format of weights and of the key/value cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// IEEE single precision.
    F32,
    /// bfloat16: the upper half of a single.
    Bf16,
}

impl Dtype {
    /// Bytes of one number.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    pub(crate) fn kind(self) -> tch::Kind {
        match self {
            Self::F32 => tch::Kind::Float,
            Self::Bf16 => tch::Kind::BFloat16,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        })
    }
}

impl FromStr for Dtype {
    type Err = ModelError;

    fn from_str(s: &str) -> Result<Self, ModelError> {
        match s {
            "f32" | "float32" => Ok(Self::F32),
            "bf16" | "bfloat16" => Ok(Self::Bf16),
            _ => Err(ModelError::Dtype {
                dtype: s.to_owned(),
            }),
        }
    }
}

/// The device a model runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
    /// A CUDA device, or a ROCm device, which LibTorch shows under the same name.
    Cuda(usize),
}

impl Device {
    pub(crate) fn torch(self) -> tch::Device {
        match self {
            Self::Cpu => tch::Device::Cpu,
            Self::Cuda(index) => tch::Device::Cuda(index),
        }
    }

    /// Makes the device usable, or says why it is not.
    ///
    /// # Errors
    /// [`ModelError::Device`] naming the missing library, driver or index.
    pub fn prepare(self) -> Result<(), ModelError> {
        let Self::Cuda(index) = self else {
            return Ok(());
        };
        let refuse = |problem: String| ModelError::Device {
            device: self.to_string(),
            problem,
        };
        load_accelerator().map_err(refuse)?;
        if !tch::Cuda::is_available() {
            return Err(refuse(
                "libtorch finds no device (is a driver installed, new enough?)".into(),
            ));
        }
        let count = usize::try_from(tch::Cuda::device_count()).unwrap_or(0);
        if index >= count {
            return Err(refuse(format!("this machine has {count}")));
        }
        Ok(())
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl FromStr for Device {
    type Err = ModelError;

    fn from_str(s: &str) -> Result<Self, ModelError> {
        let index = match s {
            "cpu" => return Ok(Self::Cpu),
            "cuda" => Some("0"),
            _ => s.strip_prefix("cuda:"),
        };
        index
            .and_then(|i| i.parse().ok())
            .map(Self::Cuda)
            .ok_or_else(|| ModelError::Device {
                device: s.to_owned(),
                problem: "must be cpu, cuda or cuda:N".to_owned(),
            })
    }
}

/// Libraries that bring an accelerator to LibTorch when they are loaded.
const ACCELERATOR_LIBRARIES: [&str; 2] = ["libtorch_cuda.so", "libtorch_hip.so"];

/// Loads LibTorch's accelerator part from the folder `libtorch_cpu.so` came from.
///
/// The linker drops a library whose symbols nobody names, and naming them would tie the binary to
/// one vendor; loading by hand has neither fault.
fn load_accelerator() -> Result<(), String> {
    let folder = libtorch_folder();
    let mut failures = Vec::new();
    for name in ACCELERATOR_LIBRARIES {
        let beside = folder.as_ref().map(|f| f.join(name));
        let path = match &beside {
            Some(path) if path.exists() => path.as_path(),
            _ => Path::new(name),
        };
        match open_library(path) {
            Ok(()) => return Ok(()),
            Err(problem) => failures.push(problem),
        }
    }
    Err(failures.join("; "))
}

/// Opens a shared library for the life of the process, its symbols visible to all.
#[allow(
    unsafe_code,
    reason = "dlopen is the only way to load a library at run time"
)]
pub(crate) fn open_library(path: &Path) -> Result<(), String> {
    let name = CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| format!("{}: holds a zero byte", path.display()))?;
    // SAFETY: `name` is a C string that outlives the call. The library's initialisers are
    // LibTorch's own and expect to run under dlopen, as Python does it.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if !handle.is_null() {
        return Ok(());
    }
    // SAFETY: dlerror returns null or a C string that is valid until the next dl call of this
    // thread; it is copied before that.
    let text = unsafe {
        let message = libc::dlerror();
        if message.is_null() {
            None
        } else {
            Some(CStr::from_ptr(message).to_string_lossy())
        }
    };
    Err(text.map_or_else(
        || format!("{}: not loaded", path.display()),
        |t| t.into_owned(),
    ))
}

/// The folder that the running process has LibTorch from.
fn libtorch_folder() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|l| l.ends_with("/libtorch_cpu.so"))?;
    let start = line.find('/')?;
    Path::new(&line[start..]).parent().map(Path::to_path_buf)
}

/// Memory of this process. Unit: bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Resident now.
    pub resident_bytes: u64,
    /// Most that was ever resident.
    pub peak_bytes: u64,
}

/// Reads the resident memory and its peak; `None` where the system does not tell.
///
/// Source: proc(5), `/proc/pid/status`, VmRSS and VmHWM.
pub fn process_memory() -> Option<ProcessMemory> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    };
    Some(ProcessMemory {
        resident_bytes: field("VmRSS")?,
        peak_bytes: field("VmHWM")?,
    })
}

/// Lets [`ProcessMemory::peak_bytes`] start anew from what is resident now. False where the system
/// does not allow it.
///
/// Source: proc(5), `/proc/pid/clear_refs`, value 5.
pub fn reset_peak_memory() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Memory that this process can still take: what the machine has free, and no more than what its
/// control group allows. `None` where the system does not tell.
///
/// Source: proc(5), MemAvailable; Linux, `Documentation/admin-guide/cgroup-v2.rst`, memory.max.
pub fn available_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    let free = kib * 1024;
    Some(group_memory().map_or(free, |group| free.min(group)))
}

/// What the control group of this process has left; `None` without a limit.
fn group_memory() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|l| l.strip_prefix("0::/"))?;
    let folder = Path::new("/sys/fs/cgroup").join(group);
    let number = |file: &str| -> Option<u64> {
        let text = std::fs::read_to_string(folder.join(file)).ok()?;
        text.trim().parse().ok()
    };
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_and_dtypes() {
        let device = |s: &str| match s.parse::<Device>() {
            Ok(d) => d.to_string(),
            Err(e) => e.to_string(),
        };
        assert_eq!(device("cpu"), "cpu");
        assert_eq!(device("cuda"), "cuda:0");
        assert_eq!(device("cuda:3"), "cuda:3");
        assert_eq!(device("gpu"), "device gpu: must be cpu, cuda or cuda:N");
        assert_eq!(
            device("cuda:x"),
            "device cuda:x: must be cpu, cuda or cuda:N"
        );
        let dtype = |s: &str| match s.parse::<Dtype>() {
            Ok(d) => d.to_string(),
            Err(e) => e.to_string(),
        };
        assert_eq!(dtype("float32"), "f32");
        assert_eq!(dtype("bf16"), "bf16");
        assert_eq!(dtype("int3"), "dtype int3: must be f32 or bf16");
    }

    #[test]
    fn memory_of_this_process_is_plausible() {
        let held = vec![1u8; 32 << 20];
        let memory = process_memory().unwrap();
        assert!(memory.resident_bytes > held.len() as u64);
        assert!(memory.peak_bytes >= memory.resident_bytes);
    }

    #[test]
    fn what_is_free_is_more_than_nothing_and_less_than_the_machine_has() {
        let free = available_memory().unwrap();
        assert!((1 << 20..1 << 50).contains(&free), "{free}");
    }

    #[test]
    fn a_missing_accelerator_is_named() {
        let problem = open_library(Path::new("/nonexistent/libtorch_cuda.so")).unwrap_err();
        assert!(
            problem.contains("/nonexistent/libtorch_cuda.so"),
            "{problem}"
        );
    }
}
