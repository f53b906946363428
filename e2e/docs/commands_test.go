package docs

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cmd"
)

// wrong says what of a command line the plugin does not know: a command of it, or a flag; empty: nothing.
func wrong(root *cobra.Command, line string) string {
	line = regexp.MustCompile(`[;|#)].*| 2?>.*`).ReplaceAllString(line, "")
	words := strings.Fields(line)
	if len(words) == 0 || !regexp.MustCompile(`^[a-z-]`).MatchString(words[0]) || words[0] == "__complete" {
		return "" // of a command that the reader chooses
	}
	command, _, err := root.Find(words)
	if err != nil || command == root && !strings.HasPrefix(words[0], "-") {
		return "there is no command " + words[0]
	}
	command.InitDefaultHelpFlag()
	for _, word := range words {
		name, _, _ := strings.Cut(strings.TrimRight(word, ".,:"), "=")
		switch {
		case strings.HasPrefix(name, "--") && command.Flag(name[2:]) == nil:
			return command.CommandPath() + " has no flag " + name
		case regexp.MustCompile(`^-[A-Za-z]$`).MatchString(name) && command.Flags().ShorthandLookup(name[1:]) == nil &&
			command.InheritedFlags().ShorthandLookup(name[1:]) == nil:
			return command.CommandPath() + " has no flag " + name
		}
	}
	return ""
}

func TestNamedCommandsOfThePluginExist(t *testing.T) {
	root := cmd.New(genericiooptions.IOStreams{})
	root.InitDefaultCompletionCmd()
	for line, want := range map[string]string{
		"move data -n shop --target-cluster west --dry-run": "",
		"move status -A":              "",
		"fetch data":                  "there is no command fetch",
		"move data --to west":         "kubectl lodestone move has no flag --to",
		"why pod web-1 -x":            "kubectl lodestone why has no flag -x",
		"why pod web-1 | tail -x":     "",
		"status --context home; true": "",
	} {
		assert.Equal(t, want, wrong(root, line), line)
	}
	expression, found := regexp.MustCompile("kubectl(?: --context [a-z-]+)? lodestone ([^`\n]*)"), 0
	all := pages(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		data, err := os.ReadFile(filepath.Join("..", "..", name))
		require.NoError(t, err)
		number, code := 0, false
		for line := range strings.Lines(string(data)) {
			number++
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			for _, at := range expression.FindAllStringSubmatchIndex(line, -1) {
				// In text, commands are set as code.
				if !code && strings.Count(line[:at[0]], "`")%2 == 0 {
					continue
				}
				found++
				said := wrong(root, line[at[2]:at[3]])
				assert.Empty(t, said, "%s:%d: %s", name, number, strings.TrimSpace(line))
			}
		}
	}
	require.Greater(t, found, 100)
}
