//! `prony-sut inspect`: what a model will cost, as text or JSON.

use std::fmt::Write as _;

use prony_models::{Inspection, ModelSource, inspect};
use serde_json::{Value, json};

use crate::backend::torch;
use crate::config::InspectArgs;
use crate::error::SutError;

/// Lengths that the text answers for, as far as the model goes that far.
const LENGTHS: [usize; 6] = [128, 512, 2048, 8192, 32_768, 131_072];

/// Looks at the model and says what it will cost.
///
/// # Errors
/// The [`SutError`] of a model that cannot be used.
pub fn report(args: &InspectArgs) -> Result<String, SutError> {
    let config = args.how.of(args.model.clone());
    let options = torch::options(&config, args.kv_tokens)?;
    let Ok(source) = args.model.parse::<ModelSource>();
    let seen = inspect(&source, &options).map_err(|source| SutError::Model {
        model: args.model.clone(),
        source,
    })?;
    Ok(if args.json {
        format!("{:#}\n", as_json(&seen, args))
    } else {
        as_text(&seen, args)
    })
}

/// Sequences of each length that fit at once.
fn batches(seen: &Inspection, args: &InspectArgs) -> Option<Vec<(usize, u64)>> {
    let tokens = seen.tokens_that_fit(args.max_batch_tokens)?;
    let longest = seen.info.max_tokens;
    let shorter = LENGTHS.into_iter().filter(|&length| length < longest);
    let lengths = shorter.chain([longest]);
    Some(lengths.map(|n| (n, tokens / n as u64)).collect())
}

fn as_json(seen: &Inspection, args: &InspectArgs) -> Value {
    let info = &seen.info;
    let stored = seen.stored.iter().map(|(encoding, (n_tensors, bytes))| {
        let value = json!({"tensors": n_tensors, "bytes": bytes});
        (encoding.clone(), value)
    });
    let fits = batches(seen, args).map(|all| {
        let entry = |(length, batch)| json!({"length": length, "batch": batch});
        all.into_iter().map(entry).collect::<Vec<_>>()
    });
    json!({
        "model": args.model,
        "architecture": info.architecture,
        "device": info.device.to_string(),
        "dtype": info.dtype.to_string(),
        "kv_dtype": info.kv_dtype.to_string(),
        "quant": info.quant.to_string(),
        "n_parameters": info.n_parameters,
        "n_layers": info.n_layers,
        "vocab_size": info.vocab_size,
        "max_tokens": info.max_tokens,
        "stored": stored.collect::<serde_json::Map<_, _>>(),
        "weight_bytes": info.weight_bytes,
        "kv_bytes_per_token": info.kv_bytes_per_token,
        "kv_tokens": info.kv_capacity_tokens,
        "kv_bytes": seen.cache_bytes(),
        "activation_bytes": seen.activation_bytes(args.max_batch_tokens, args.max_batch_tokens),
        "matrix_flops_per_token": seen.matrix_flops_per_token,
        "attention_flops_per_pair": seen.attention_flops_per_pair,
        "available_bytes": seen.available_bytes,
        "fits": fits,
    })
}

fn as_text(seen: &Inspection, args: &InspectArgs) -> String {
    let info = &seen.info;
    let mut text = String::new();
    // Writing into a String cannot fail.
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<16} {value}");
    };
    line("model", format!("{} ({})", args.model, info.architecture));
    line("parameters", grouped(info.n_parameters));
    for (encoding, (n_tensors, bytes)) in &seen.stored {
        let value = format!("{encoding}: {} in {n_tensors} tensors", mib(*bytes));
        line("stored", value);
    }
    let format = if info.quant.to_string() == "none" {
        info.dtype.to_string()
    } else {
        format!("{}, {}", info.dtype, info.quant)
    };
    line("weights", format!("{} in {format}", mib(info.weight_bytes)));
    line(
        "key/value cache",
        format!(
            "{} bytes a token in {}; {} for {} tokens",
            grouped(info.kv_bytes_per_token),
            info.kv_dtype,
            mib(seen.cache_bytes()),
            grouped(info.kv_capacity_tokens as u64)
        ),
    );
    let rows = args.max_batch_tokens;
    let bytes = seen.activation_bytes(rows, rows);
    line(
        "activations",
        format!("{} for a step of {rows}", mib(bytes)),
    );
    line(
        "operations",
        format!(
            "{:.1} MFLOP a token, and {:.1} kFLOP for each token it looks back on",
            seen.matrix_flops_per_token as f64 / 1e6,
            seen.attention_flops_per_pair as f64 / 1e3
        ),
    );
    let (Some(available), Some(fits)) = (seen.available_bytes, batches(seen, args)) else {
        line("free memory", format!("{} does not tell", info.device));
        return text;
    };
    line("free memory", mib(available));
    for (length, batch) in fits {
        line("fits", format!("{} of {length} tokens", grouped(batch)));
    }
    text
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// `1234567` → `1,234,567`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        let shown = [0, 999, 1000, 134_515_008].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "134,515,008"]);
        assert_eq!(mib(3 << 19), "1.5 MiB");
    }
}
