//! `prony` from the shell: the real binary against a server that tells the truth.

mod fake_server;

mod real_prony;

mod run;

mod complaints;

mod suite;

mod find_peak;
