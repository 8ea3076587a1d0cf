//! `--print-plan`: what a configuration leads to.

use std::fmt::Write as _;

use super::{BackendConfig, Config};

impl Config {
    /// What this configuration leads to, one `name = value` line each.
    ///
    /// `max_model_len` is what the loaded model and the cache allow.
    #[must_use]
    pub fn plan(&self, max_model_len: usize) -> String {
        let mut plan = String::new();
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            // Writing into a String cannot fail.
            let _ = writeln!(plan, "{name} = {value}");
        };
        line("served_model_name", &self.served_model_name);
        match &self.backend {
            BackendConfig::Echo(echo) => {
                line("backend", &"echo");
                line("echo_ttft_ms", &(echo.ttft.as_secs_f64() * 1e3));
                line("echo_itl_ms", &(echo.itl.as_secs_f64() * 1e3));
            }
            BackendConfig::Torch(torch) => {
                line("backend", &"torch");
                line("model", &torch.model);
                line("device", &torch.device);
                line("dtype", &format!("{:?}", torch.dtype).to_lowercase());
                line("kv_dtype", &format!("{:?}", torch.kv_dtype).to_lowercase());
                line("quant", &torch.quant.name());
                line("threads", &torch.threads);
            }
        }
        line("http_threads", &self.http_threads);
        line("max_model_len", &max_model_len);
        line("max_batch_rows", &self.limits.max_batch_rows);
        line("max_batch_tokens", &self.limits.max_batch_tokens);
        line("kv_tokens", &self.limits.kv_tokens);
        let schedule = &self.schedule;
        line("target_itl_ms", &(schedule.target_itl.as_secs_f64() * 1e3));
        line("prefix_cache", &schedule.prefix_cache);
        line("max_queue", &self.limits.max_queue);
        line("max_queue_tokens", &self.limits.max_queue_tokens);
        line("drain_timeout_s", &self.drain_timeout.as_secs_f64());
        line("max_connections", &self.edge.limits.max_connections);
        line(
            "idle_timeout_s",
            &self.edge.limits.idle_timeout.as_secs_f64(),
        );
        line(
            "stall_timeout_s",
            &self.edge.limits.stall_timeout.as_secs_f64(),
        );
        line("tls", &self.edge.tls.is_some());
        plan
    }
}
