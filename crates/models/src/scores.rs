//! What the numbers of a head mean: probabilities, labels, the best span. Pure functions.

use std::cmp::Ordering;

use crate::encoder_config::ScoreKind;

/// Scores of the labels from a classifier's numbers.
pub fn label_scores(kind: ScoreKind, numbers: &[f32]) -> Vec<f32> {
    match kind {
        ScoreKind::Softmax => softmax(numbers),
        ScoreKind::Sigmoid => numbers.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
        ScoreKind::Identity => numbers.to_vec(),
    }
}

/// `exp(x) / sum of exp(x)`; NaN anywhere makes all of them NaN.
pub fn softmax(numbers: &[f32]) -> Vec<f32> {
    let max = numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut weights: Vec<f32> = numbers.iter().map(|x| (x - max).exp()).collect();
    let total: f32 = weights.iter().sum();
    weights.iter_mut().for_each(|w| *w /= total);
    weights
}

/// Index of the largest number, the first of equals; `None` without a number that is one.
pub fn best_label(numbers: &[f32]) -> Option<usize> {
    let candidates = numbers.iter().enumerate().filter(|(_, x)| !x.is_nan());
    let best = candidates.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
    best.map(|(i, _)| i)
}

/// A span of tokens that may answer a question.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnswerSpan {
    /// First token.
    pub start: usize,
    /// Last token, inclusive.
    pub end: usize,
    /// Probability of the start times that of the end, each among the tokens allowed.
    pub score: f32,
}

/// The `n` best spans of at most `max_tokens` tokens, best first. A span starts and ends on
/// tokens that `allowed` marks (the context's) and does not leave them in between.
///
/// Source: the question answering pipeline of transformers, which multiplies the two softmaxes;
/// here they run over the allowed tokens only.
///
/// # Panics
/// If the three lists differ in length.
pub fn best_spans(
    (start, end): (&[f32], &[f32]),
    allowed: &[bool],
    max_tokens: usize,
    n: usize,
) -> Vec<AnswerSpan> {
    assert!(
        start.len() == end.len() && start.len() == allowed.len(),
        "one start, end and mark for each token"
    );
    let starts = softmax(&masked(start, allowed));
    let ends = softmax(&masked(end, allowed));
    let mut spans: Vec<AnswerSpan> = Vec::new();
    for first in (0..start.len()).filter(|&i| allowed[i]) {
        let run = (first..start.len()).take_while(|&i| allowed[i]);
        for last in run.take(max_tokens) {
            let score = starts[first] * ends[last];
            // Too many spans to sort them all: a text of 512 tokens has 7,500 of 15 tokens.
            if spans.len() < n || spans.last().is_some_and(|worst| score > worst.score) {
                let at = spans.partition_point(|s| {
                    s.score.partial_cmp(&score).unwrap_or(Ordering::Less) != Ordering::Less
                });
                spans.insert(
                    at,
                    AnswerSpan {
                        start: first,
                        end: last,
                        score,
                    },
                );
                spans.truncate(n);
            }
        }
    }
    spans
}

fn masked(numbers: &[f32], allowed: &[bool]) -> Vec<f32> {
    let pairs = numbers.iter().zip(allowed);
    pairs
        .map(|(x, ok)| if *ok { *x } else { f32::NEG_INFINITY })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_by_hand() {
        let near = |a: Vec<f32>, b: &[f32]| {
            assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6), "{a:?}");
        };
        // Odds 1 : 3.
        let ln3 = 3.0f32.ln();
        near(label_scores(ScoreKind::Softmax, &[0.0, ln3]), &[0.25, 0.75]);
        // Too large for exp itself.
        near(label_scores(ScoreKind::Softmax, &[1e4, 1e4]), &[0.5, 0.5]);
        near(label_scores(ScoreKind::Sigmoid, &[0.0, ln3]), &[0.5, 0.75]);
        near(label_scores(ScoreKind::Identity, &[-2.0]), &[-2.0]);
        assert_eq!(best_label(&[0.5, f32::NAN, 2.0, 2.0]), Some(2));
        assert_eq!(best_label(&[f32::NAN]), None);
        assert_eq!(best_label(&[]), None);
    }

    /// Spans as (start, end), best first.
    fn spans(
        start: &[f32],
        end: &[f32],
        allowed: &str,
        max: usize,
        n: usize,
    ) -> Vec<(usize, usize)> {
        let allowed: Vec<bool> = allowed.chars().map(|c| c == 'x').collect();
        let found = best_spans((start, end), &allowed, max, n);
        found.iter().map(|s| (s.start, s.end)).collect()
    }

    #[test]
    fn the_best_span_ends_after_its_start_and_stays_in_the_context() {
        // Alone the best start is 3 and the best end 1: no span.
        let (start, end) = ([0.0, 2.0, 0.0, 3.0], [0.0, 5.0, 4.5, 0.0]);
        assert_eq!(spans(&start, &end, "xxxx", 9, 2), [(1, 1), (1, 2)]);
        // Token 1 is the question's.
        assert_eq!(spans(&start, &end, "..xx", 9, 1), [(2, 2)]);
        // A gap is not crossed: 0 to 2 would score best.
        assert_eq!(
            spans(&[9.0, 0.0, 0.0], &[0.0, 0.0, 9.0], "x.x", 9, 9),
            [(0, 0), (2, 2)]
        );
        // The length is bounded.
        assert_eq!(
            spans(&[9.0, 0.0, 0.0], &[0.0, 0.0, 9.0], "xxx", 2, 1),
            [(0, 0)]
        );
        assert_eq!(spans(&start, &end, "....", 9, 3), []);
    }

    #[test]
    fn a_score_is_the_product_of_two_probabilities() {
        let ln3 = 3.0f32.ln();
        let found = best_spans(
            (&[9.0, 0.0, ln3], &[9.0, ln3, 0.0]),
            &[false, true, true],
            9,
            9,
        );
        let scores: Vec<f32> = found.iter().map(|s| s.score).collect();
        // Starts 1/4 and 3/4, ends 3/4 and 1/4; the span from 2 to 1 does not exist.
        let expected = [3.0 / 16.0, 3.0 / 16.0, 1.0 / 16.0];
        assert!(
            scores
                .iter()
                .zip(expected)
                .all(|(a, b)| (a - b).abs() < 1e-6),
            "{scores:?}"
        );
        assert_eq!((found[0].start, found[0].end), (1, 1));
        // Equal scores keep the order of their start.
        assert_eq!((found[1].start, found[1].end), (2, 2));
    }
}
