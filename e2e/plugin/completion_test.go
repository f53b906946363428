package plugin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cmd"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
)

// completed returns what the plugin offers a shell for a command line, without descriptions.
func completed(t *testing.T, line string) []string {
	t.Helper()
	words := strings.Split(line, " ") // the last one may be empty
	var offered []string
	for text := range strings.Lines(lodestone(t, append([]string{"__complete"}, words...)...).ends(t, done).out) {
		name, _, _ := strings.Cut(strings.TrimSuffix(text, "\n"), "\t")
		if !strings.HasPrefix(name, ":") {
			offered = append(offered, name)
		}
	}
	return offered
}

// offers are command lines, and what a shell is to offer for the last word.
var offers = map[string]string{
	"move -n {ns} ":                           "data wal pvc statefulset deployment pod",
	"move -n {ns} data ":                      "wal",
	"move -n {ns} pvc ":                       "data wal",
	"move -n {ns} pvc/":                       "pvc/data pvc/wal",
	"move -n {ns} pod/":                       "pod/web",
	"move data --target-cluster ":             "home west",
	"move data --target-node ":                "west",
	"move data --class ":                      "home-now home-wait west-now west-wait",
	"move data --verify ":                     "Quick Full",
	"move data -o ":                           "json yaml name",
	"move status -n {ns} ":                    "data {move}",
	"move abort -n {ns} ":                     "data {move}",
	"move abort -n {ns} pvc ":                 "data wal",
	"move abort -n {ns} volumemove/":          "volumemove/{move}",
	"move finalize -n {ns} ":                  "data {move}",
	"move rollback -n {ns} ":                  "data {move}",
	"move give-up -n {ns} ":                   "data {move}",
	"replicate -n {ns} ":                      "data wal pvc statefulset deployment pod",
	"replicate -n {ns} pod/":                  "pod/web",
	"replicate data --to ":                    "home west",
	"replicate status -n {ns} ":               "wal spare",
	"replicate pause -n {ns} ":                "wal spare",
	"replicate resume -n {ns} ":               "wal spare",
	"replicate accept -n {ns} ":               "wal spare",
	"replicate delete -n {ns} pvc ":           "data wal",
	"replicate delete -n {ns} volumereplica/": "volumereplica/spare",
	"failover -n {ns} ":                       "data wal pvc statefulset deployment pod",
	"failover data --fence ":                  "Proven Lease Declared",
	"failback -n {ns} ":                       "data {move}",
	"adopt --context west ":                   "{home}",
	"status ":                                 "west remotecluster",
	"status -n ":                              "{ns} default",
	"status -o ":                              "wide json yaml name",
	"status --context ":                       "home west",
	"status --cluster ":                       "home west",
	"status --lodestone-namespace ":           "lodestone-system",
	"why ":                                    "pod pvc namespace deployment statefulset replicaset daemonset job",
	"why -n {ns} pod/":                        "pod/web",
	"why -n {ns} pvc ":                        "data wal",
	"why namespace ":                          "{ns}",
	"unpeer ":                                 "west",
	"unpeer west --remote-context ":           "home west",
	"confirm ":                                "west",
	"peer --name ":                            "west",
	"peer --remote-context ":                  "home west",
	"peer --dry-run ":                         "none client",
	"import -n {ns} pvc/":                     "pvc/data pvc/wal",
	"import pvc/data --class ":                "lodestone",
	"import pvc/data --cluster ":              "west",
	"lose -n {ns} pvc ":                       "data wal",
	"lose -n {ns} ":                           "pvc pv",
	"import -n {ns} ":                         "pvc pv",
	"network status ":                         "west",
	"network test ":                           "west",
	"network test west --to ":                 "home west",
	"why -n {ns} daemonset ":                  "logs",
	"install --scheduler ":                    "extender second",
	"install --certificates ":                 "job cert-manager",
	"choose -n {ns} ":                         "data wal",
	"release -n {ns} ":                        "web",
	"rebind --context west ":                  "{ns} namespace",
	"rebind --context west namespace/{ns}":    "namespace/{ns}",
	"daemonsets ":                             "{ns}/logs",
	"completion ":                             "bash fish powershell zsh",
	"help move ":                              "abort finalize",
}

func TestTheShellIsOfferedWhatIsThere(t *testing.T) {
	namespace, move := completable(t)
	id, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	names := strings.NewReplacer("{ns}", namespace, "{move}", move, "{home}", id)
	for line, words := range offers {
		t.Run(line, func(t *testing.T) {
			assert.Subset(t, completed(t, names.Replace(line)), strings.Fields(names.Replace(words)))
		})
	}
	assert.NotContains(t, completed(t, "move -n "+namespace+" data "), "data", "it is named already")
	assert.Empty(t, completed(t, "unpeer west "), "it takes one")
	assert.Empty(t, completed(t, "move data --bandwidth-limit "), "no files are offered where none is to be named")
	requireAllOffered(t)
	shellsComplete(t, names)
}

// requireAllOffered checks that there is a line for each command that has names to offer.
func requireAllOffered(t *testing.T) {
	t.Helper()
	root := cmd.New(genericiooptions.NewTestIOStreamsDiscard())
	tried := map[*cobra.Command]bool{}
	for line := range offers {
		command, _, err := root.Find(strings.Fields(line))
		require.NoError(t, err, line)
		tried[command] = true
	}
	nothing := reflect.ValueOf(cobra.NoFileCompletions).Pointer()
	var each func(*cobra.Command)
	each = func(command *cobra.Command) {
		offersNames := command.ValidArgsFunction != nil && reflect.ValueOf(command.ValidArgsFunction).Pointer() != nothing
		assert.True(t, tried[command] || !offersNames && command.ValidArgs == nil, "no line tries %s", command.CommandPath())
		for _, inner := range command.Commands() {
			each(inner)
		}
	}
	each(root)
}

// completable is a shop with a move of claim data, a second copy of claim wal and a DaemonSet.
func completable(t *testing.T) (namespace, move string) {
	t.Helper()
	namespace = shop(t)
	sets := bed.Home.Client().AppsV1().DaemonSets(namespace)
	must.Create(t, sets, fabric.NewDaemonSet(namespace, "logs"))
	objects, err := clients.NewVolumeMoveClient(bed.Home.AdminConfig())
	require.NoError(t, err)
	must.Create(t, objects.Replicas(namespace), &v1alpha1.VolumeReplica{ObjectMeta: metav1.ObjectMeta{Name: "spare"},
		Spec: v1alpha1.VolumeReplicaSpec{Claims: []string{"wal"}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: "west"}}}})
	out := lodestone(t, "move", "data", "-n", namespace, "--target-cluster", "west", "--detach", "-o", "name").ends(t, done).out
	return namespace, strings.TrimSpace(strings.TrimPrefix(out, "volumemove.lodestone.dev/"))
}

// bashCompletion is what completion in bash needs besides bash.
const bashCompletion = "/usr/share/bash-completion/bash_completion"

// shells complete command lines, each with the script that the program prints for it. $1 is the program: kubectl, which asks
// kubectl_complete-lodestone, or kubectl-lodestone; the lines follow. They write what they would offer for a line, a line each, and
// then separator.
var shells = map[string]string{
	"bash": `
		source ` + bashCompletion + `
		program=$1
		source <("$program" completion bash)
		for line in "${@:2}"; do
			COMP_LINE=$line COMP_POINT=${#line} COMP_TYPE=9 COLUMNS=200 COMPREPLY=()
			read -ra COMP_WORDS <<<"$line"
			[[ $line != *' ' ]] || COMP_WORDS+=('')
			COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
			"__start_$program"
			printf '%s\n' "${COMPREPLY[@]}" '` + separator + `'
		done`,
	"zsh": `
		compdef() { :; }
		_describe() { print -rl -- "${completions[@]}"; }
		program=$1
		source <("$program" completion zsh)
		for line in "${@:2}"; do
			words=("${(@s: :)line}") CURRENT=${#words}
			"_$program"
			print -r -- '` + separator + `'
		done`,
	"fish": `
		source (eval $argv[1] completion fish | psub)
		for line in $argv[2..]
			complete --do-complete $line
			echo '` + separator + `'
		end`,
}

const separator = "--- next"

// shellsComplete sees that each shell offers what the plugin does, for kubectl lodestone and for kubectl-lodestone.
func shellsComplete(t *testing.T, names *strings.Replacer) {
	folder := t.TempDir()
	for name, script := range map[string]string{
		"kubectl":                    fmt.Sprintf("exec '%s' kubectl \"$@\"", bed.Home.Program()),
		"kubectl-lodestone":          fmt.Sprintf("exec '%s' \"$@\"", program),
		"kubectl_complete-lodestone": `exec kubectl lodestone __complete "$@"`, // as docs/kubectl-lodestone.md says
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	lines := []string{"move -n {ns} pvc ", "move -n {ns} pvc/da", "move data --target-cluster ", "move abort -n {ns} volumemove/",
		"unpeer ", "status --context "}
	for shell, script := range shells {
		t.Run(shell, func(t *testing.T) {
			_, err := exec.LookPath(shell)
			if _, lacks := os.Stat(bashCompletion); lacks != nil && shell == "bash" {
				err = lacks
			}
			if err != nil {
				require.Empty(t, os.Getenv("LODESTONE_COMPLETE"), "%s cannot be tried (%v), and nothing is to be skipped", shell, err)
				t.Skipf("%s cannot be tried (%v): apt-get install bash-completion fish zsh", shell, err)
			}
			for program, command := range map[string]string{"kubectl": "kubectl lodestone ", "kubectl-lodestone": "kubectl-lodestone "} {
				arguments := []string{"-c", script, "-", program}
				if shell == "fish" {
					arguments = []string{"--no-config", "-c", script, program}
				}
				for _, line := range lines {
					arguments = append(arguments, command+names.Replace(line))
				}
				c := exec.CommandContext(t.Context(), shell, arguments...)
				c.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+folder+":"+os.Getenv("PATH"))
				r := finish(t, c)
				answers := strings.Split(r.out, separator+"\n")
				require.Len(t, answers, len(lines)+1, "%s: %s%s", shell, r.out, r.stderr)
				for i, line := range lines {
					var offered []string
					for text := range strings.Lines(answers[i]) {
						// A description is behind a tab, a colon or two spaces.
						name := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("\t:\n ", r) })
						offered = append(offered, slices.Concat(name, []string{""})[0])
					}
					wanted := strings.Fields(names.Replace(offers[line]))
					if line == "move -n {ns} pvc/da" {
						wanted = []string{"pvc/data"}
					}
					assert.Subset(t, offered, wanted, "%s offers for %q: %s%s", shell, command+line, answers[i], r.stderr)
				}
			}
		})
	}
}
