import java.io.File;
import java.io.IOException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import javax.tools.ToolProvider;

/**
 * The client without a build step: {@code java Pellucid.java PROGRAM [FLAGS]}, Java 17 or later with its compiler.
 *
 * <p>The single-file launcher of Java 17 sees this file alone, so it compiles those of {@code src/} into {@code build/} when
 * one of them is newer than its class, and runs them. {@code javac -d build src/pellucid/*.java} does the same by hand.
 */
public final class Pellucid {
    private static final String MAIN = "pellucid.Main";

    public static void main(String[] arguments) throws Exception {
        Path here = Path.of(Pellucid.class.getProtectionDomain().getCodeSource().getLocation().toURI()).getParent();
        Path build = here.resolve("build");
        compile(here.resolve("src"), build);
        URLClassLoader loader = new URLClassLoader(new URL[] {build.toUri().toURL()});
        loader.loadClass(MAIN).getMethod("main", String[].class).invoke(null, (Object) arguments);
    }

    private static void compile(Path sources, Path build) throws IOException {
        List<String> command = new ArrayList<>(List.of("-d", build.toString()));
        File compiled = build.resolve(MAIN.replace('.', '/') + ".class").toFile();
        boolean isCurrent = compiled.exists();
        try (Stream<Path> found = Files.walk(sources)) {
            for (Path source : found.filter(path -> path.toString().endsWith(".java")).toList()) {
                command.add(source.toString());
                isCurrent &= source.toFile().lastModified() <= compiled.lastModified();
            }
        }
        if (isCurrent) return;
        int code = ToolProvider.getSystemJavaCompiler().run(null, null, null, command.toArray(String[]::new));
        if (code != 0) System.exit(code);
    }
}
