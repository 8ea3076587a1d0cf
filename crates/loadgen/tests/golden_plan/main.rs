//! Planning and configuration against golden data of the reference LoadGen.

mod data;

mod primitives;

mod sequences;

mod threads;
