//! The data set as the load generator and the client see it: the load generator says what must be
//! in memory, the client takes ready-made requests out.
//!
//! Loading a sample means writing its whole HTTP request, head and body, once and untimed; between
//! "due" and "sent" nothing is formatted or copied.

use std::sync::{Arc, PoisonError, RwLock};

use prony_loadgen::sample::{QuerySampleLibrary, SampleIndex};

use crate::api::Api;
use crate::datasets::Dataset;
use crate::prompt::Generation;
use crate::url::BaseUrl;

/// The requests in memory, shared with the client's thread.
#[derive(Debug, Clone)]
pub struct Requests {
    // One lock for all: written before a phase and after it, only read inside it.
    slots: Arc<RwLock<Slots>>,
}

/// One entry per sample of the data set; `None` where it is not loaded.
type Slots = Vec<Option<Arc<[u8]>>>;

impl Requests {
    fn new(n: usize) -> Self {
        Self {
            slots: Arc::new(RwLock::new(vec![None; n])),
        }
    }

    /// The request of a sample, if it is loaded.
    #[must_use]
    pub fn get(&self, index: SampleIndex) -> Option<Arc<[u8]>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.get(index.0 as usize).cloned().flatten()
    }

    fn set(&self, index: SampleIndex, request: Option<Arc<[u8]>>) {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get_mut(index.0 as usize) {
            *slot = request;
        }
    }
}

/// How requests are written.
#[derive(Debug, Clone)]
pub struct RequestForm {
    /// Where to.
    pub url: BaseUrl,
    /// In which API.
    pub api: &'static dyn Api,
    /// Model name to ask for.
    pub model: Option<String>,
    /// Further header lines, name and value.
    pub headers: Vec<(String, String)>,
    /// How the answer is to be generated.
    pub generation: Generation,
}

/// A data set whose loaded samples are requests.
#[derive(Debug)]
pub struct RequestLibrary {
    dataset: Box<dyn Dataset>,
    performance_sample_count: usize,
    form: RequestForm,
    requests: Requests,
}

impl RequestLibrary {
    /// Nothing is loaded yet. All samples fit in memory unless `performance_sample_count` says
    /// otherwise.
    #[must_use]
    pub fn new(
        dataset: Box<dyn Dataset>,
        performance_sample_count: Option<usize>,
        form: RequestForm,
    ) -> Self {
        let n = dataset.len();
        Self {
            performance_sample_count: performance_sample_count.unwrap_or(n).min(n),
            requests: Requests::new(n),
            dataset,
            form,
        }
    }

    /// What the client takes requests from.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// The request of one sample, head and body.
    #[must_use]
    pub fn request(&self, index: SampleIndex) -> Vec<u8> {
        let item = self.dataset.item(index.0 as usize);
        let form = &self.form;
        let body = form
            .api
            .body(&item, form.model.as_deref(), &form.generation);
        let mut request = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n",
            form.url.path(form.api.path()),
            form.url.authority(),
            body.len()
        );
        for (name, value) in &form.headers {
            request.push_str(name);
            request.push_str(": ");
            request.push_str(value);
            request.push_str("\r\n");
        }
        request.push_str("\r\n");
        let mut request = request.into_bytes();
        request.extend_from_slice(&body);
        request
    }
}

impl QuerySampleLibrary for RequestLibrary {
    fn name(&self) -> &str {
        self.dataset.name()
    }

    fn total_sample_count(&self) -> usize {
        self.dataset.len()
    }

    fn performance_sample_count(&self) -> usize {
        self.performance_sample_count
    }

    fn load_samples(&mut self, samples: &[SampleIndex]) {
        for &index in samples {
            self.requests.set(index, Some(self.request(index).into()));
        }
    }

    fn unload_samples(&mut self, samples: &[SampleIndex]) {
        for &index in samples {
            self.requests.set(index, None);
        }
    }
}
