//! Planning and configuration against golden data of the reference LoadGen.

mod data;

mod conf;

mod logs;

mod primitives;

mod sequences;

mod threads;
