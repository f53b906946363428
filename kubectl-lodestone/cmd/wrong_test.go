package cmd

import (
	"encoding/csv"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

// wrongLine is a command line of testdata/wrong.txt, and the sentence that it is answered with.
type wrongLine struct{ typed, says string }

// wrongLines reads testdata/wrong.txt: pairs of lines, and comments.
func wrongLines(t *testing.T) (all []wrongLine) {
	t.Helper()
	content, err := os.ReadFile("testdata/wrong.txt")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	for i := 0; i < len(lines); i++ {
		if strings.HasPrefix(lines[i], "#") {
			continue
		}
		typed, is := strings.CutPrefix(lines[i], "$ kubectl lodestone ")
		require.True(t, is && i+1 < len(lines), "line %d: %s", i+1, lines[i])
		i++
		all = append(all, wrongLine{typed: typed, says: lines[i]})
	}
	return all
}

// words are the arguments of a command line, of which some may be in quotation marks.
func (w wrongLine) words(t *testing.T) []string {
	t.Helper()
	reader := csv.NewReader(strings.NewReader(w.typed))
	reader.Comma = ' '
	words, err := reader.Read()
	require.NoError(t, err, w.typed)
	return words
}

func TestWhatIsWrongWithACommandLineIsSaidInOneSentence(t *testing.T) {
	for _, line := range wrongLines(t) {
		t.Run(line.typed, func(t *testing.T) {
			code, out, stderr := run(t, line.words(t)...)
			assert.Equal(t, line.says+"\n", stderr)
			assert.Equal(t, cli.Usage, code)
			assert.Empty(t, out)
		})
	}
}

// flag returns the flag that a command line tries, the last one in it, if the sentence is about that: it names the flag or repeats
// its value. It returns nil if the arguments are tried.
func (w wrongLine) flag(t *testing.T, command *cobra.Command) *pflag.Flag {
	t.Helper()
	words := w.words(t)
	for i := len(words) - 1; i >= 0; i-- {
		name, value, given := strings.Cut(words[i], "=")
		if !strings.HasPrefix(name, "-") {
			continue
		}
		if !given && i+1 < len(words) {
			value = words[i+1]
		}
		flag := command.Flag(strings.TrimPrefix(name, "--"))
		if letter := strings.TrimPrefix(name, "-"); len(letter) == 1 {
			if flag = command.LocalFlags().ShorthandLookup(letter); flag == nil {
				flag = command.InheritedFlags().ShorthandLookup(letter)
			}
		}
		if flag != nil && (strings.Contains(w.says, "--"+flag.Name) || strings.Contains(w.says, " "+name+" ") || value != "" &&
			strings.Contains(w.says, value)) {
			return flag
		}
	}
	return nil
}

func TestEachCommandAndEachFlagIsTriedWrongOnce(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	root := New(streams)
	tried := map[string]bool{}
	for _, line := range wrongLines(t) {
		command, _, err := root.Find(line.words(t))
		require.NoError(t, err, line.typed)
		if flag := line.flag(t, command); flag != nil {
			tried[owner(command, flag).CommandPath()+" --"+flag.Name] = true
		} else {
			tried[command.CommandPath()] = true
		}
	}
	var check func(command *cobra.Command)
	check = func(command *cobra.Command) {
		assert.True(t, tried[command.CommandPath()], "%s is not tried with wrong arguments", command.CommandPath())
		command.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			name := command.CommandPath() + " --" + flag.Name
			assert.True(t, tried[name], "%s is not tried with a wrong value", name)
		})
		for _, inner := range command.Commands() {
			check(inner)
		}
	}
	check(root)
}

// owner returns the command that a flag was given to: the command itself, or the root.
func owner(command *cobra.Command, flag *pflag.Flag) *cobra.Command {
	if command.LocalFlags().Lookup(flag.Name) == flag {
		return command
	}
	return command.Root()
}
