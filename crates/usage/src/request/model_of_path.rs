//! The model of a request whose address names it.

use super::Request;
use crate::format::Api;

impl Request {
    /// Adds the model that the path of the request names, if the API has models in paths and not in bodies.
    pub fn read_path(&mut self, api: Api, path: &str) {
        let model = match api {
            Api::Gemini => path.rsplit_once("/models/").and_then(|(_, method)| method.split_once(':')),
            Api::Bedrock => path
                .strip_suffix("/converse")
                .or_else(|| path.strip_suffix("/converse-stream"))
                .and_then(|path| path.rsplit_once("/model/"))
                .map(|(_, model)| (model, "")),
            Api::OpenAi | Api::OpenAiResponses | Api::Anthropic => return,
        };
        let model = model
            .map(|(model, _)| model.replace("%3A", ":").replace("%3a", ":").replace("%2F", "/").replace("%2f", "/"));
        self.model = model.filter(|model| !model.contains('%') && model.len() <= crate::json::MAX_KEY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(api: Api, path: &str) -> Option<String> {
        let mut request = Request::default();
        request.read_path(api, path);
        request.model
    }

    #[test]
    fn paths_of_gemini_name_the_model() {
        let project = "/v1/projects/models/locations/l/publishers/google/models/gemini-2.5-pro:generateContent";
        assert_eq!(model(Api::Gemini, project).as_deref(), Some("gemini-2.5-pro"));
        assert_eq!(model(Api::Gemini, "/v1beta/models/a:streamGenerateContent").as_deref(), Some("a"));
        assert_eq!(model(Api::Gemini, "/v1beta/models"), None);
        assert_eq!(model(Api::OpenAi, "/v1/models/a:b"), None);
    }

    #[test]
    fn paths_of_bedrock_name_the_model() {
        let path = "/model/anthropic.claude-3%3A0/converse-stream";
        assert_eq!(model(Api::Bedrock, path).as_deref(), Some("anthropic.claude-3:0"));
        assert_eq!(model(Api::Bedrock, "/model/a/invoke"), None);
        assert_eq!(model(Api::Bedrock, "/model/a%25/converse"), None);
    }
}
