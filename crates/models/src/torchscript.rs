//! Any TorchScript module: arrays in, arrays out. Vision models, and engines compiled elsewhere.
//!
//! Knows nothing about what the numbers mean. A module that needs operators of another library
//! (Torch-TensorRT, torchvision) names it; the library is loaded first.

use std::path::{Path, PathBuf};

use tch::{CModule, IValue, Kind, Tensor};

use crate::device::{Device, Dtype, open_library};
use crate::error::ModelError;

/// Numbers of an array, row after row.
#[derive(Debug, Clone, PartialEq)]
pub enum ArrayData {
    /// Single precision; narrower formats are widened to it.
    F32(Vec<f32>),
    /// Double precision.
    F64(Vec<f64>),
    /// 64-bit integers; narrower signed ones are widened to them.
    I64(Vec<i64>),
    /// 32-bit integers.
    I32(Vec<i32>),
    /// Bytes.
    U8(Vec<u8>),
    /// Truth values.
    Bool(Vec<bool>),
}

/// An array with its shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// Length along each dimension, outermost first.
    pub shape: Vec<usize>,
    /// The numbers.
    pub data: ArrayData,
}

/// An array that a module returned.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedArray {
    /// The key where the module returns a dictionary, `output_0`, `output_1` and so on elsewhere.
    pub name: String,
    /// The array.
    pub array: Array,
}

/// How to load a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptOptions {
    /// Format that floating-point inputs and weights are turned into.
    pub dtype: Dtype,
    /// Where to compute.
    pub device: Device,
    /// Threads of LibTorch's operators.
    pub threads: usize,
    /// Shared libraries to load first, in order.
    pub libraries: Vec<PathBuf>,
}

/// A loaded module.
pub struct ScriptModule {
    path: PathBuf,
    module: CModule,
    device: Device,
    dtype: Dtype,
}

impl ScriptModule {
    /// Loads a `.pt` file.
    ///
    /// # Errors
    /// [`ModelError::NotFound`], [`ModelError::Script`] for a library or module that cannot be
    /// loaded, [`ModelError::Device`].
    pub fn load(path: &Path, options: &ScriptOptions) -> Result<Self, ModelError> {
        let refuse = |problem: String| ModelError::Script {
            path: path.to_owned(),
            problem,
        };
        if !path.exists() {
            return Err(ModelError::NotFound {
                path: path.to_owned(),
            });
        }
        options.device.prepare()?;
        for library in &options.libraries {
            open_library(library).map_err(|e| refuse(format!("library {e}")))?;
        }
        tch::set_num_threads(i32::try_from(options.threads.max(1)).unwrap_or(i32::MAX));
        let module = CModule::load_on_device(path, options.device.torch());
        let mut module = module.map_err(|e| refuse(first_line(&e)))?;
        module.f_set_eval().map_err(|e| refuse(first_line(&e)))?;
        if options.dtype != Dtype::F32 {
            module.to(options.device.torch(), options.dtype.kind(), false);
        }
        Ok(Self {
            path: path.to_owned(),
            module,
            device: options.device,
            dtype: options.dtype,
        })
    }

    /// Runs the module's `forward`.
    ///
    /// # Errors
    /// [`ModelError::Input`] for an array whose numbers do not fill its shape,
    /// [`ModelError::Script`] for what the module refuses and for a result that holds no arrays.
    pub fn run(&mut self, inputs: &[Array]) -> Result<Vec<NamedArray>, ModelError> {
        let inputs = inputs.iter().enumerate();
        let inputs = inputs
            .map(|(i, array)| self.tensor(i, array).map(IValue::Tensor))
            .collect::<Result<Vec<_>, _>>()?;
        let result = tch::no_grad(|| self.module.forward_is(&inputs));
        let result = result.map_err(|e| self.refuse(first_line(&e)))?;
        let mut outputs = Vec::new();
        self.collect(None, result, &mut outputs)?;
        Ok(outputs)
    }

    fn refuse(&self, problem: String) -> ModelError {
        ModelError::Script {
            path: self.path.clone(),
            problem,
        }
    }

    fn tensor(&self, index: usize, array: &Array) -> Result<Tensor, ModelError> {
        let refuse = |problem: String| ModelError::Input { index, problem };
        let expected = array
            .shape
            .iter()
            .try_fold(1usize, |n, d| n.checked_mul(*d));
        let shape: Option<Vec<i64>> = array.shape.iter().map(|&d| i64::try_from(d).ok()).collect();
        let (flat, n) = match &array.data {
            ArrayData::F32(v) => (Tensor::f_from_slice(v)?, v.len()),
            ArrayData::F64(v) => (Tensor::f_from_slice(v)?, v.len()),
            ArrayData::I64(v) => (Tensor::f_from_slice(v)?, v.len()),
            ArrayData::I32(v) => (Tensor::f_from_slice(v)?, v.len()),
            ArrayData::U8(v) => (Tensor::f_from_slice(v)?, v.len()),
            ArrayData::Bool(v) => (Tensor::f_from_slice(v)?, v.len()),
        };
        let Some(shape) = shape.filter(|_| expected == Some(n)) else {
            return Err(refuse(format!(
                "{n} numbers for the shape {:?}",
                array.shape
            )));
        };
        let kind = match array.data {
            ArrayData::F32(_) => self.dtype.kind(),
            _ => flat.kind(),
        };
        let tensor = flat.f_view(&shape[..])?.f_to_kind(kind)?;
        Ok(tensor.f_to_device(self.device.torch())?)
    }

    /// Flattens tuples, lists and dictionaries of tensors.
    fn collect(
        &self,
        name: Option<&str>,
        value: IValue,
        outputs: &mut Vec<NamedArray>,
    ) -> Result<(), ModelError> {
        match value {
            IValue::Tensor(tensor) => {
                let name = name.map_or_else(|| format!("output_{}", outputs.len()), str::to_owned);
                let array = self.array(&tensor)?;
                outputs.push(NamedArray { name, array });
            }
            IValue::Tuple(values) | IValue::GenericList(values) => {
                for value in values {
                    self.collect(None, value, outputs)?;
                }
            }
            IValue::TensorList(tensors) => {
                for tensor in tensors {
                    self.collect(None, IValue::Tensor(tensor), outputs)?;
                }
            }
            IValue::GenericDict(pairs) => {
                for (key, value) in pairs {
                    let IValue::String(key) = key else {
                        return Err(self.refuse(format!("returned the key {key:?}, no string")));
                    };
                    self.collect(Some(&key), value, outputs)?;
                }
            }
            // An optional result that is not there.
            IValue::None => {}
            other => return Err(self.refuse(format!("returned {other:?}, no array"))),
        }
        Ok(())
    }

    fn array(&self, tensor: &Tensor) -> Result<Array, ModelError> {
        let shape = tensor.size().iter().map(|&d| d as usize).collect();
        let flat = tensor
            .f_to_device(tch::Device::Cpu)?
            .f_contiguous()?
            .f_view([-1i64])?;
        let data = match tensor.kind() {
            Kind::Float | Kind::Half | Kind::BFloat16 => {
                ArrayData::F32(Vec::try_from(flat.f_to_kind(Kind::Float)?)?)
            }
            Kind::Double => ArrayData::F64(Vec::try_from(flat)?),
            Kind::Int64 | Kind::Int16 | Kind::Int8 => {
                ArrayData::I64(Vec::try_from(flat.f_to_kind(Kind::Int64)?)?)
            }
            Kind::Int => ArrayData::I32(Vec::try_from(flat)?),
            Kind::Uint8 => ArrayData::U8(Vec::try_from(flat)?),
            Kind::Bool => ArrayData::Bool(Vec::try_from(flat)?),
            other => return Err(self.refuse(format!("returned an array of {other:?}"))),
        };
        Ok(Array { shape, data })
    }
}

/// LibTorch's messages carry a stack trace; what went wrong stands in the last line of the module's
/// own trace, or in the first of all.
fn first_line(e: &tch::TchError) -> String {
    let text = e.to_string();
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let named = lines.clone().find_map(|l| l.strip_prefix("RuntimeError: "));
    let line = named.or_else(|| lines.clone().next());
    line.unwrap_or("no message").to_owned()
}
