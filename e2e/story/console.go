package story

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	bold  = "1"
	green = "32"
	red   = "31"
	cyan  = "36"
	faint = "2"
)

// console writes the story, in colours only on a terminal. It may be used
// concurrently.
type console struct {
	mu      sync.Mutex
	out     io.Writer
	colours bool
	terse   bool
}

func newConsole(out io.Writer, terse bool) *console {
	return &console{out: out, colours: isTerminal(out), terse: terse}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (c *console) paint(colour, text string) string {
	if !c.colours {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// line writes one line, whatever the mode.
func (c *console) line(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.out, format+"\n", args...)
}

// tell writes a line that the terse mode leaves out.
func (c *console) tell(format string, args ...any) {
	if !c.terse {
		c.line(format, args...)
	}
}

func (c *console) title(number int, title, words string) {
	c.tell("")
	c.line("%s", c.paint(bold, fmt.Sprintf("%2d. %s", number, title)))
	for _, line := range wrap(words, 96) {
		c.tell("    %s", line)
	}
}

func (c *console) note(text string) {
	for _, line := range wrap(text, 96) {
		c.tell("    %s", line)
	}
}

func (c *console) command(cluster, command string) {
	c.tell("")
	c.tell("    %s %s", c.paint(cyan, cluster+"$"), command)
}

func (c *console) output(text string) {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		c.tell("    %s", strings.TrimRight(line, " "))
	}
}

func (c *console) ok(text string, took time.Duration) {
	c.line("    %s %s%s", c.paint(green, "ok:"), text, c.paint(faint, duration(took)))
}

func (c *console) failed(text string, err error) {
	c.line("    %s %s", c.paint(red, "FAILED:"), text)
	for line := range strings.SplitSeq(err.Error(), "\n") {
		c.line("            %s", line)
	}
}

func (c *console) waiting(text string) {
	c.line("    %s", c.paint(faint, "waiting until: "+text))
}

// duration is shown for what took long enough to be of interest.
func duration(took time.Duration) string {
	if took < 100*time.Millisecond {
		return ""
	}
	return fmt.Sprintf(" (%.1f s)", took.Seconds())
}

// wrap breaks text, whatever its line breaks, into lines of at most width.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
