//! A backend without a model: repeats the prompt's ids at a set pace, then ends the text.
//!
//! For tests of everything around the model, and for measuring what the server itself costs.
//! Token `k` of a sequence is due at start + TTFT + k × ITL, whatever the batch around it looks
//! like: late steps do not add up, and the engine thread never sleeps inside a step.

use std::time::Instant;

use super::{Answers, Backend, BackendError, BackendInfo, SeqId, Step};
use crate::config::{EchoConfig, Limits};
use crate::request::Generate;
use crate::stream::Drawn;
use crate::tokenize::BYTE_EOS;

/// Same block size as the model's cache, so that tests of the cache's limits mean the same.
const BLOCK_TOKENS: usize = 16;

/// Any id a client's own tokenizer may produce is accepted.
const VOCAB_SIZE: usize = 1 << 24;

/// The echo backend.
#[derive(Debug)]
pub struct Echo {
    info: BackendInfo,
    config: EchoConfig,
    kv_free: usize,
    seqs: Vec<Option<Seq>>,
    unused: Vec<u32>,
}

#[derive(Debug)]
struct Seq {
    prompt: Vec<u32>,
    n_drawn: usize,
    first_due: Instant,
    /// Tokens fed; their blocks are its own.
    kv_len: usize,
}

impl Echo {
    /// An echo backend with a cache that is only counted.
    #[must_use]
    pub fn new(config: EchoConfig, limits: &Limits) -> Self {
        let kv_capacity_tokens = limits.kv_tokens.next_multiple_of(BLOCK_TOKENS);
        Echo {
            info: BackendInfo {
                max_model_len: kv_capacity_tokens,
                vocab_size: VOCAB_SIZE,
                eos_ids: vec![BYTE_EOS],
                kv_capacity_tokens,
                kv_block_tokens: BLOCK_TOKENS,
            },
            config,
            kv_free: kv_capacity_tokens,
            seqs: Vec::new(),
            unused: Vec::new(),
        }
    }

    fn seq(&self, id: SeqId) -> Option<&Seq> {
        self.seqs.get(id.0 as usize)?.as_ref()
    }
}

impl Backend for Echo {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    fn kv_free_tokens(&self) -> usize {
        self.kv_free
    }

    fn open(&mut self, request: &Generate, now: Instant) -> Result<SeqId, BackendError> {
        let seq = Some(Seq {
            prompt: request.prompt.clone(),
            n_drawn: 0,
            first_due: now + self.config.ttft,
            kv_len: 0,
        });
        Ok(SeqId(match self.unused.pop() {
            Some(id) => {
                self.seqs[id as usize] = seq;
                id
            }
            None => {
                self.seqs.push(seq);
                (self.seqs.len() - 1) as u32
            }
        }))
    }

    fn seat(&mut self, _: SeqId, _: &[u32]) -> usize {
        0
    }

    fn unseat(&mut self, seq: SeqId) {
        if let Some(Some(seq)) = self.seqs.get_mut(seq.0 as usize) {
            self.kv_free += self.info.kv_cost(std::mem::take(&mut seq.kv_len));
        }
    }

    fn close(&mut self, seq: SeqId) {
        self.unseat(seq);
        if let Some(slot) = self.seqs.get_mut(seq.0 as usize)
            && slot.take().is_some()
        {
            self.unused.push(seq.0);
        }
    }

    fn ready_at(&self, seq: SeqId) -> Option<Instant> {
        let seq = self.seq(seq)?;
        let n_drawn = u32::try_from(seq.n_drawn).unwrap_or(u32::MAX);
        Some(seq.first_due + self.config.itl.saturating_mul(n_drawn))
    }

    fn step(&mut self, step: &Step, answers: &mut Answers) -> Result<(), BackendError> {
        let scores = step.followers.iter().map(|&id| Drawn::certain(id));
        answers.scores.extend(scores);
        for row in &step.rows {
            let seq = self
                .seqs
                .get_mut(row.seq.0 as usize)
                .and_then(Option::as_mut);
            let Some(seq) = seq else {
                return Err(BackendError::BadRow(format!(
                    "sequence {}: not open",
                    row.seq.0
                )));
            };
            let (had, has) = (seq.kv_len, seq.kv_len + row.n_ids);
            let growth = self.info.kv_cost(has) - self.info.kv_cost(had);
            let Some(kv_free) = self.kv_free.checked_sub(growth) else {
                let problem = format!("cache: {growth} tokens needed, {} free", self.kv_free);
                return Err(BackendError::BadRow(problem));
            };
            (self.kv_free, seq.kv_len) = (kv_free, has);
            answers.next.push(row.draw.then(|| {
                let n_tokens = self.config.n_tokens.unwrap_or(seq.prompt.len());
                let id = if seq.n_drawn == n_tokens {
                    BYTE_EOS
                } else {
                    seq.prompt[seq.n_drawn % seq.prompt.len()]
                };
                seq.n_drawn += 1;
                Drawn::certain(id)
            }));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::Row;
    use crate::request::Params;

    fn request(prompt: &[u32], max_tokens: usize) -> Generate {
        Generate {
            prompt: prompt.to_vec(),
            max_tokens,
            params: Params::greedy(),
            cache_root: None,
        }
    }

    fn echo(config: EchoConfig) -> Echo {
        let limits = Limits {
            max_batch_rows: 4,
            max_batch_tokens: 8,
            kv_tokens: 64,
            max_queue: 1,
            max_queue_tokens: 1,
        };
        Echo::new(config, &limits)
    }

    fn draw(echo: &mut Echo, seq: SeqId) -> Option<u32> {
        let mut answers = Answers::default();
        let step = Step {
            ids: vec![0],
            rows: vec![Row {
                seq,
                n_ids: 1,
                draw: true,
                n_scored: 0,
            }],
            followers: Vec::new(),
        };
        echo.step(&step, &mut answers).unwrap();
        answers.next[0].as_ref().map(|drawn| drawn.id)
    }

    #[test]
    fn repeats_the_prompt_and_ends() {
        let now = crate::clock::now();
        let mut echo = echo(EchoConfig {
            n_tokens: Some(3),
            ..EchoConfig::default()
        });
        let seq = echo.open(&request(&[7, 8], 9), now).unwrap();
        let drawn: Vec<u32> = (0..5).filter_map(|_| draw(&mut echo, seq)).collect();
        // After the end of text the echo goes on, as a model does under ignore_eos.
        assert_eq!(drawn, [7, 8, 7, BYTE_EOS, 7]);
    }

    #[test]
    fn tokens_are_due_on_a_fixed_grid() {
        let now = crate::clock::now();
        let ms = Duration::from_millis;
        let mut echo = echo(EchoConfig {
            ttft: ms(100),
            itl: ms(10),
            n_tokens: None,
        });
        let seq = echo.open(&request(&[7], 9), now).unwrap();
        assert_eq!(echo.ready_at(seq), Some(now + ms(100)));
        draw(&mut echo, seq);
        draw(&mut echo, seq);
        assert_eq!(echo.ready_at(seq), Some(now + ms(120)));
    }

    #[test]
    fn cache_is_counted_in_blocks_and_given_back() {
        let now = crate::clock::now();
        let mut echo = echo(EchoConfig::default());
        let a = echo.open(&request(&[0; 16], 2), now).unwrap();
        let feed = |echo: &mut Echo, n| {
            let row = Row {
                seq: a,
                n_ids: n,
                draw: false,
                n_scored: 0,
            };
            let step = Step {
                ids: vec![0; n],
                rows: vec![row],
                followers: Vec::new(),
            };
            echo.step(&step, &mut Answers::default())
                .map(|()| echo.kv_free_tokens())
        };
        assert_eq!(echo.seat(a, &[0; 16]), 0);
        assert_eq!(echo.kv_free_tokens(), 64);
        assert_eq!(feed(&mut echo, 16).unwrap(), 48);
        assert_eq!(feed(&mut echo, 1).unwrap(), 32);
        assert_eq!(feed(&mut echo, 15).unwrap(), 32);
        assert!(feed(&mut echo, 33).is_err());
        echo.unseat(a);
        assert_eq!(echo.kv_free_tokens(), 64);
        assert_eq!(feed(&mut echo, 33).unwrap(), 16);
        echo.close(a);
        echo.close(a);
        assert_eq!(echo.kv_free_tokens(), 64);
        assert_eq!(echo.open(&request(&[0; 16], 1), now).unwrap(), a);
    }
}
