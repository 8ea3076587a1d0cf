//! A few short tasks in plain English, so that a first run needs no file.
//!
//! Written for this project. Too few for a serious measurement: a server that caches prefixes
//! sees every one of them again.

use super::Dataset;
use crate::prompt::{Item, Prompt};

/// The data set; its texts are in the program.
#[derive(Debug)]
pub struct Builtin;

impl Dataset for Builtin {
    fn name(&self) -> &'static str {
        "builtin"
    }

    fn len(&self) -> usize {
        PROMPTS.len()
    }

    fn item(&self, index: usize) -> Item {
        Item {
            prompt: Prompt::Text(PROMPTS[index].to_owned()),
            max_tokens: None,
        }
    }
}

const PROMPTS: [&str; 24] = [
    "Explain in three sentences why the sky is blue and why sunsets are red.",
    "Write a short letter to a neighbor who has found your lost cat.",
    "List five things to check before a long bicycle tour and say why each matters.",
    "What is the difference between a river and a canal? Answer for a ten-year-old.",
    "Describe how bread rises, from mixing the dough to taking the loaf out of the oven.",
    "Give a recipe for a simple tomato soup for four people.",
    "Tell a story about a lighthouse keeper who repairs clocks at night.",
    "How does a steam engine turn heat into motion? Name its main parts.",
    "Compare traveling by train and by plane over a distance of five hundred kilometers.",
    "Write a product description for a sturdy wooden chair made by hand.",
    "Why do we have leap years, and which years are they?",
    "Give advice to somebody who wants to learn the piano at the age of sixty.",
    "Summarize the plot of a detective novel that you invent on the spot.",
    "Explain what a prime number is and prove that there is no largest one.",
    "Write the minutes of a short meeting about a new playground.",
    "How do bees find their way back to the hive?",
    "Describe a walk through a market in the early morning, with sounds and smells.",
    "What should a small company do in the first hour after its server has failed?",
    "Explain how a lock on a canal lifts a boat, step by step.",
    "Write four lines about the first snow of the year.",
    "What makes a good question in an interview? Give three examples.",
    "Describe how to plant an apple tree and care for it in the first year.",
    "Why is the ocean salty while most lakes are not?",
    "Explain compound interest with an example that uses round numbers.",
];
