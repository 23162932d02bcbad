//! The formats of responses: where an API reports its usage, and which numbers include others.

mod counts;

use std::sync::{Arc, LazyLock};

use self::counts::TEXT;
pub(crate) use self::counts::parse_count;
pub use self::counts::{Count, Counts};
use crate::json::{PointerError, Pointers};
use crate::usage::Usage;
use tidegate_limit::text::words::words;

words! {
    /// The APIs whose requests and responses can be read.
    pub enum Api, default OpenAi {
        /// OpenAI chat completions, completions and embeddings, also of vLLM, Azure, Mistral and Groq.
        OpenAi = "openai",
        /// OpenAI responses.
        OpenAiResponses = "openai_responses",
        /// Anthropic messages.
        Anthropic = "anthropic",
        /// Gemini and Vertex: `generateContent` and `streamGenerateContent`.
        Gemini = "gemini",
        /// Bedrock: `Converse` and `ConverseStream`.
        Bedrock = "bedrock",
    }
}

/// The format of responses. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    pointers: Arc<Pointers>,
    has_cache_in_input: bool,
    /// Responses report only the input.
    is_of_input: bool,
}

/// The numbers of a usage, and their places below one of the roots.
type Places = &'static [(Count, &'static str)];

impl Api {
    /// The objects that have a usage: in a body, and in the events of a stream.
    fn roots(self) -> &'static [&'static str] {
        match self {
            Self::OpenAi => &["/usage", "/x_groq/usage"],
            Self::OpenAiResponses => &["/usage", "/response/usage"],
            Self::Anthropic => &["/usage"],
            // Without `alt=sse`, a stream is an array.
            Self::Gemini => &["/usageMetadata", "/*/usageMetadata"],
            Self::Bedrock => &["/usage"],
        }
    }

    fn places(self) -> Places {
        match self {
            Self::OpenAi => &[
                (Count::Input, "/prompt_tokens"),
                (Count::CachedInput, "/prompt_tokens_details/cached_tokens"),
                (Count::Output, "/completion_tokens"),
                (Count::Total, "/total_tokens"),
            ],
            Self::OpenAiResponses => &[
                (Count::Input, "/input_tokens"),
                (Count::CachedInput, "/input_tokens_details/cached_tokens"),
                (Count::Output, "/output_tokens"),
                (Count::Total, "/total_tokens"),
            ],
            Self::Anthropic => &[
                (Count::Input, "/input_tokens"),
                (Count::CachedInput, "/cache_read_input_tokens"),
                (Count::CacheWrite, "/cache_creation_input_tokens"),
                (Count::Output, "/output_tokens"),
            ],
            Self::Gemini => &[
                (Count::Input, "/promptTokenCount"),
                (Count::CachedInput, "/cachedContentTokenCount"),
                (Count::ToolInput, "/toolUsePromptTokenCount"),
                (Count::Output, "/candidatesTokenCount"),
                (Count::Thoughts, "/thoughtsTokenCount"),
                (Count::Total, "/totalTokenCount"),
            ],
            Self::Bedrock => &[
                (Count::Input, "/inputTokens"),
                (Count::CachedInput, "/cacheReadInputTokens"),
                (Count::CacheWrite, "/cacheWriteInputTokens"),
                (Count::Output, "/outputTokens"),
                (Count::Total, "/totalTokens"),
            ],
        }
    }

    /// The places of numbers elsewhere. The first event of Anthropic has the tokens of the input; its output is only what
    /// has been generated so far.
    fn others(self) -> Places {
        match self {
            Self::Anthropic => &[
                (Count::Input, "/message/usage/input_tokens"),
                (Count::CachedInput, "/message/usage/cache_read_input_tokens"),
                (Count::CacheWrite, "/message/usage/cache_creation_input_tokens"),
            ],
            _ => &[],
        }
    }

    /// The places of the text in the events of a stream.
    fn texts(self) -> &'static [&'static str] {
        match self {
            Self::OpenAi => &["/choices/*/delta", "/choices/*/text"],
            Self::OpenAiResponses | Self::Anthropic | Self::Bedrock => &["/delta"],
            Self::Gemini => &["/candidates/*/content", "/*/candidates/*/content"],
        }
    }

    /// Anthropic and Bedrock report the tokens of caches in addition to the input.
    fn has_cache_in_input(self) -> bool {
        !matches!(self, Self::Anthropic | Self::Bedrock)
    }

    /// The format of its responses.
    pub fn format(self) -> Format {
        static ALL: LazyLock<Vec<Format>> = LazyLock::new(|| Api::ALL.iter().map(|api| api.build_format()).collect());
        ALL[self as usize].clone()
    }

    fn build_format(self) -> Format {
        // A test builds every format.
        let pointers = Arc::new(self.pointers().unwrap_or_default());
        Format { pointers, has_cache_in_input: self.has_cache_in_input(), is_of_input: false }
    }

    fn pointers(self) -> Result<Pointers, PointerError> {
        let mut pointers = Pointers::default();
        for root in self.roots() {
            for (count, place) in self.places() {
                pointers = pointers.value(&format!("{root}{place}"), count.field())?;
            }
        }
        for (count, place) in self.others() {
            pointers = pointers.value(place, count.field())?;
        }
        for place in self.texts() {
            pointers = pointers.text(place, TEXT)?;
        }
        Ok(pointers)
    }
}

impl Format {
    /// A format of pointers to single numbers. The input includes the cached input.
    ///
    /// # Errors
    /// A pointer is invalid.
    pub fn custom<'a>(places: impl IntoIterator<Item = (Count, &'a str)>) -> Result<Self, PointerError> {
        let (mut pointers, mut is_of_input) = (Pointers::default(), true);
        for (count, place) in places {
            is_of_input &= !matches!(count, Count::Output | Count::Total);
            pointers = pointers.value(place, count.field())?;
        }
        Ok(Self { pointers: Arc::new(pointers), has_cache_in_input: true, is_of_input })
    }

    pub(crate) fn pointers(&self) -> Arc<Pointers> {
        Arc::clone(&self.pointers)
    }

    /// The usage that these numbers are. Returns `None` if the response did not report its output: a body that ends early
    /// may have the input only.
    pub fn usage(&self, counts: &Counts) -> Option<Usage> {
        let last = if self.is_of_input { &[Count::Input][..] } else { &[Count::Output, Count::Total] };
        last.iter().any(|count| counts.has(*count)).then(|| counts.usage(self.has_cache_in_input))
    }

    /// The input of the usage that these numbers are, without the output.
    pub fn input(&self, counts: &Counts) -> Option<Usage> {
        counts.has(Count::Input).then(|| Usage { output: 0, ..counts.usage(self.has_cache_in_input) })
    }
}
