import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Prints the properties x0, x1, …, each with a NUL behind it: what the JVM made of its arguments. */
public class Properties {
    public static void main(String[] arguments) {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (int place = 0; place < Integer.parseInt(arguments[0]); place++) {
            out.print(System.getProperty("x" + place) + "\0");
        }
    }
}
