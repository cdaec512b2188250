package pellucid;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** The command line. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) {
        // UTF-8 in every locale, and no line ends but our own
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        PrintStream err = new PrintStream(new FileOutputStream(FileDescriptor.err), false, StandardCharsets.UTF_8);
        System.exit(run(arguments, System.getenv(), out, err));
    }

    /** Run a program and return its exit code. */
    static int run(String[] arguments, Map<String, String> environment, PrintStream out, PrintStream err) {
        try {
            Options options = Options.read(arguments, environment);
            if (options == null) {
                out.print(Options.HELP);
                return 0;
            }
            return new Programs(options, new Client(options, new HttpTransport(options), err), out, err).run();
        } catch (Failure failure) {
            err.print("error: " + failure.getMessage() + "\n");
            return failure.exitCode;
        } finally {
            out.flush();
            err.flush();
        }
    }
}
