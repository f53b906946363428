package testbed

import (
	"flag"
	"fmt"
	"io"
	"os"

	"k8s.io/klog/v2"
)

// divertedLogs is where the log of this process itself goes while tests run. The
// libraries log every event and every retry, which would bury what a test says.
type divertedLogs struct {
	file *os.File
}

func divertLogs() (*divertedLogs, error) {
	file, err := os.CreateTemp("", directoryPrefix+"tests-*.log")
	if err != nil {
		return nil, fmt.Errorf("make the log file of the tests: %w", err)
	}
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true"} {
		if err := flags.Set(name, value); err != nil {
			return nil, fmt.Errorf("divert the log of the tests: %w", err)
		}
	}
	klog.SetOutput(file)
	return &divertedLogs{file: file}, nil
}

// end removes the log, unless it is to be kept. What is logged from now on, by clients
// whose clusters have stopped, interests nobody.
func (l *divertedLogs) end(keep bool) {
	klog.Flush()
	klog.SetOutput(io.Discard)
	_ = l.file.Close()
	if keep {
		fmt.Fprintln(os.Stderr, "testbed: the log of the tests themselves is", l.file.Name())
		return
	}
	_ = os.Remove(l.file.Name())
}
