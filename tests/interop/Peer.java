import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RateIntervalUnit;
import org.redisson.api.RateLimiterConfig;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * A Java service that shares limiters. Executes each line of its input and prints the result as one line. Compiles with
 * Redisson 3.17: later methods are called by reflection, and the result is "absent" if this version does not have them.
 */
public final class Peer {
    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress(arguments[0]).setTimeout(10_000);
        RedissonClient redisson = Redisson.create(config);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String result;
            try {
                String[] words = line.split(" ");
                result = String.valueOf(operate(redisson.getRateLimiter(words[0]), words));
            } catch (NoSuchMethodException | ClassNotFoundException absent) {
                result = "absent";
            } catch (InvocationTargetException failed) {
                result = "error " + failed.getCause();
            } catch (Exception failed) {
                result = "error " + failed;
            }
            System.out.println(result.replace('\n', ' '));
        }
        redisson.shutdown();
    }

    private static Object operate(RRateLimiter limiter, String[] words) throws Exception {
        switch (words[1]) {
            case "trySetRate":
                return limiter.trySetRate(RateType.valueOf(words[2]), number(words[3]), number(words[4]), RateIntervalUnit.MILLISECONDS);
            case "setRate":
                limiter.setRate(RateType.valueOf(words[2]), number(words[3]), number(words[4]), RateIntervalUnit.MILLISECONDS);
                return "done";
            case "updateRate":
                Class<?> type = Class.forName("org.redisson.api.ratelimiter.RateLimiterArgs");
                Object changed = type.getMethod("of", RateType.class, long.class, Duration.class)
                    .invoke(null, RateType.valueOf(words[2]), number(words[3]), Duration.ofMillis(number(words[4])));
                changed = type.getMethod("keepState", boolean.class).invoke(changed, true);
                return RRateLimiter.class.getMethod("updateRate", type).invoke(limiter, changed);
            case "tryAcquire":
                return words.length == 3
                    ? limiter.tryAcquire(number(words[2]))
                    : limiter.tryAcquire(number(words[2]), number(words[3]), TimeUnit.MILLISECONDS);
            case "acquire":
                limiter.acquire(number(words[2]));
                return "done";
            case "release":
                RRateLimiter.class.getMethod("release", long.class).invoke(limiter, number(words[2]));
                return "done";
            case "availablePermits":
                return limiter.availablePermits();
            case "getConfig":
                RateLimiterConfig config = limiter.getConfig();
                return config.getRateType() + " " + config.getRate() + " " + config.getRateInterval();
            case "expire":
                return limiter.expire(Duration.ofMillis(number(words[2])));
            case "clearExpire":
                return limiter.clearExpire();
            case "remainTimeToLive":
                return limiter.remainTimeToLive();
            case "delete":
                return limiter.delete();
            case "load":
                return load(limiter, Integer.parseInt(words[2]), number(words[3]));
            default:
                return "error unknown operation";
        }
    }

    /** Acquires single permits for `millis`. Returns the start and the end of each granted call, in microseconds. */
    private static String load(RRateLimiter limiter, int threads, long millis) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        long end = System.nanoTime() + millis * 1_000_000;
        Callable<List<String>> client = () -> {
            List<String> grants = new ArrayList<>();
            while (System.nanoTime() < end) {
                long before = micros();
                if (limiter.tryAcquire(1)) {
                    grants.add(before + "-" + micros());
                }
            }
            return grants;
        };
        List<Future<List<String>>> clients = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            clients.add(pool.submit(client));
        }
        List<String> all = new ArrayList<>();
        for (Future<List<String>> grants : clients) {
            all.addAll(grants.get());
        }
        pool.shutdown();
        return String.join(" ", all);
    }

    private static long micros() {
        java.time.Instant now = java.time.Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
    }

    private static long number(String word) {
        return Long.parseLong(word);
    }
}
