// Runs a command with a permit, and gives the permit back if the command fails: java Take.java URL LIMIT CLIENT COMMAND
// LIMIT and CLIENT must need no escapes in JSON, which the standard library does not write.
import java.io.IOException;
import java.net.URI;
import java.net.http.*;
import java.util.*;

class Take {
    static final HttpClient CLIENT = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    // Returns the response. Repeats a request without a response: its id is charged once.
    static HttpResponse<String> post(String url, String body) throws Exception {
        var token = "Bearer " + Objects.requireNonNullElse(System.getenv("TIDEGATE_TOKEN"), "");
        var request = HttpRequest.newBuilder(URI.create(url)).header("Authorization", token)
            .POST(HttpRequest.BodyPublishers.ofString(body)).build();
        for (int left = 5; ; left--) {
            try {
                return CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
            } catch (IOException error) {
                if (left == 1) throw error;
                Thread.sleep(1000);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        var id = UUID.randomUUID();
        var limit = "{\"limit\":\"%s\",\"client\":\"%s\"}".formatted(args[1], args[2]);
        var take = "{\"limits\":[%s],\"max_wait\":\"1s\",\"id\":\"%s\"}".formatted(limit, id);
        HttpResponse<String> response;
        while ((response = post(args[0] + "/v1/take", take)).statusCode() != 200) {
            var seconds = response.headers().firstValueAsLong("Retry-After");
            if (response.statusCode() != 429 || seconds.isEmpty()) throw new IOException(response.body());
            Thread.sleep(1000 * seconds.getAsLong());
        }
        var command = Arrays.asList(args).subList(3, args.length);
        int code = new ProcessBuilder(command).inheritIO().start().waitFor();
        if (code != 0) post(args[0] + "/v1/return", "{\"id\":\"%s\"}".formatted(id));
        System.exit(code);
    }
}
