package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: home
contexts:
- {name: home, context: {cluster: home, user: me}}
- {name: west, context: {cluster: west, user: me}}
clusters:
- {name: home, cluster: {server: "https://127.0.0.1:1"}}
- {name: west, cluster: {server: "https://127.0.0.1:1"}}
users:
- {name: me, user: {token: secret}}
`

func run(t *testing.T, args ...string) (code cli.ExitCode, out, stderr string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(kubeconfig), 0o600))
	t.Setenv("KUBECONFIG", path)
	streams, _, stdout, errout := genericiooptions.NewTestIOStreams()
	return cli.ExitCode(Run(t.Context(), streams, args...)), stdout.String(), errout.String()
}

func TestWrongCommandLinesAreUsageErrors(t *testing.T) {
	for name, args := range map[string][]string{
		"an unknown command":                   {"pear"},
		"an unknown flag":                      {"peer", "--colour"},
		"a flag without its value":             {"peer", "--remote-context"},
		"an argument too many":                 {"peer", "west"},
		"an argument too few":                  {"unpeer"},
		"an unknown kind":                      {"why", "node", "west"},
		"no kind":                              {"release"},
		"no kind of what is lost":              {"lose"},
		"a cluster away for less than no time": {"lose", "pv", "v", "--away", "-1s"},
		"a context that does not exist":        {"status", "--context", "east"},
		"a remote one that does not":           {"peer", "--remote-context", "east"},
		"an unknown output":                    {"status", "-o", "table"},
		"a token for a minute":                 {"peer", "--remote-context", "west", "--token-duration", "1m"},
		"an ID in capitals":                    {"peer", "--remote-context", "west", "--home-id", "Berlin"},
		"an authority that is not there":       {"peer", "--remote-context", "west", "--remote-ca-file", "/nowhere"},
		"no time":                              {"peer", "--remote-context", "west", "--timeout", "0s"},
		"nothing to move":                      {"move"},
		"a move to nowhere":                    {"move", "data"},
		"a move to two places":                 {"move", "data", "--target-node", "a", "--target-cluster", "west"},
		"a way that does not exist":            {"move", "data", "--target-cluster", "west", "--transport", "Pigeon"},
		"a comparison that does not exist":     {"move", "data", "--target-cluster", "west", "--verify", "Never"},
		"fewer passes than none":               {"move", "data", "--target-cluster", "west", "--passes", "-1"},
		"no bandwidth":                         {"move", "data", "--target-cluster", "west", "--bandwidth-limit", "0"},
		"a source that is kept less than not":  {"move", "data", "--target-cluster", "west", "--keep-source-for", "-1s"},
		"a Job to move":                        {"move", "job/db", "--target-cluster", "west"},
		"a page for everybody":                 {"dashboard", "--address", "0.0.0.0"},
		"a page at no port":                    {"dashboard", "--port", "70000"},
		"a page of something":                  {"dashboard", "west"},
		"a negative offer":                     {"peer", "--remote-context", "west", "--offer", "cpu=-1"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := run(t, args...)
			assert.Equal(t, cli.Usage, code, stderr)
			assert.Equal(t, 1, strings.Count(stderr, "error: "), stderr)
		})
	}
}

func TestAClusterThatDoesNotAnswerIsAFailure(t *testing.T) {
	for _, args := range [][]string{
		{"status"}, {"dashboard"}, {"peer", "--remote-context", "west"}, {"unpeer", "west"}, {"why", "pod", "web"}, {"why", "pvc", "data"},
		{"release", "pod", "web"}, {"check-upgrade"}, {"announce", "--name", "west", "--domain", "example.com"},
		{"rebind", "namespace", "shop"}, {"adopt", "3f2a91c0"}, {"lose", "pvc", "data"}, {"lose", "pv", "v"},
		{"import", "pvc", "data", "--class", "lodestone"}, {"import", "pv", "v", "--class", "lodestone"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			code, out, stderr := run(t, args...)
			assert.Equal(t, cli.Failed, code)
			assert.Empty(t, out)
			assert.Contains(t, stderr, `the cluster of context "home" does not answer`)
		})
	}
}

func TestEveryCommandHasHelpWithExamples(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	var check func(command *cobra.Command)
	check = func(command *cobra.Command) {
		for _, inner := range command.Commands() {
			check(inner)
		}
		if command.HasParent() && !command.HasSubCommands() && command.Name() != "help" {
			assert.NotEmpty(t, command.Short, command.CommandPath())
			assert.NotEmpty(t, command.Long, command.CommandPath())
			assert.Contains(t, command.Example, "kubectl lodestone", command.CommandPath())
		}
	}
	check(New(streams))
	code, out, _ := run(t, "--help")
	assert.Equal(t, cli.OK, code)
	assert.Contains(t, out, "Exit codes: 0 done;")
	code, out, _ = run(t)
	assert.Equal(t, cli.OK, code)
	assert.Contains(t, out, "Available Commands:")
}

func TestTheShellCompletesContextsAndValues(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"contexts":       {args: []string{"peer", "--remote-context", ""}, want: "home\nwest\n"},
		"ways to log in": {args: []string{"peer", "--auth", ""}, want: "token\ncertificate\n"},
		"formats":        {args: []string{"status", "-o", ""}, want: "wide\njson\nyaml\nname\n"},
	} {
		t.Run(name, func(t *testing.T) {
			_, out, _ := run(t, append([]string{"__complete"}, test.args...)...)
			assert.True(t, strings.HasPrefix(out, test.want), out)
		})
	}
	code, out, _ := run(t, "completion", "bash")
	assert.Equal(t, cli.OK, code)
	assert.NotEmpty(t, out)
}

func TestWhatIsWrongWithAKubeconfigIsSaid(t *testing.T) {
	for name, row := range map[string]struct{ content, says string }{
		"there is none": {"", `there is no kubeconfig: give --kubeconfig, or set KUBECONFIG to the path of one`},
		"it chooses no context": {strings.Replace(kubeconfig, "current-context: home\n", "", 1),
			`the kubeconfig has no current context: choose one with --context; there are: home, west`},
		"it chooses one that it does not have": {strings.Replace(kubeconfig, "current-context: home", "current-context: east", 1),
			`the kubeconfig has no context "east"; there are: home, west`},
		"its context has no cluster": {strings.Replace(kubeconfig, "cluster: home, user: me", "cluster: gone, user: me", 1),
			`context "home" names a cluster that is not there: the kubeconfig has no cluster "gone"; there are: home, west`},
		"its context has no user": {strings.Replace(kubeconfig, "cluster: home, user: me", "cluster: home, user: you", 1),
			`context "home" names a user that is not there: the kubeconfig has no user "you"; there is: me`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kubeconfig")
			if row.content != "" {
				require.NoError(t, os.WriteFile(path, []byte(row.content), 0o600))
			}
			t.Setenv("KUBECONFIG", path)
			streams, _, _, stderr := genericiooptions.NewTestIOStreams()
			assert.Equal(t, cli.Usage, cli.ExitCode(Run(t.Context(), streams, "status")))
			assert.Equal(t, "error: "+row.says+"\n", stderr.String())
		})
	}
}
