package cli_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

func TestArgumentsAreReadAsKubectlReadsThem(t *testing.T) {
	claim := func(name string) cli.Reference { return cli.Reference{Kind: cli.Claim, Name: name} }
	for args, want := range map[string][]cli.Reference{
		"data":                                {{Name: "data"}},
		"data wal":                            {{Name: "data"}, {Name: "wal"}},
		"pvc/data":                            {claim("data")},
		"PVC/data":                            {claim("data")},
		"pvc data":                            {claim("data")},
		"pvc data wal":                        {claim("data"), claim("wal")},
		"pvc/data persistentvolumeclaims/wal": {claim("data"), claim("wal")},
		"pvc":                                 {{Name: "pvc"}}, // a claim may have this name
		"pvc pvc":                             {claim("pvc")},
		"deploy writer":                       {{Kind: cli.Deployment, Name: "writer"}},
		"deployments.apps/writer":             {{Kind: cli.Deployment, Name: "writer"}},
		"sts/db":                              {{Kind: cli.StatefulSet, Name: "db"}},
	} {
		got, err := cli.References(strings.Fields(args), cli.Claim, cli.Deployment, cli.StatefulSet)
		require.NoError(t, err, args)
		assert.Equal(t, want, got, args)
	}
	kinds := "write pvc/NAME, deployment/NAME or statefulset/NAME"
	for args, says := range map[string]string{
		"x/y":           `"x/y" is not understood: ` + kinds,
		"job/x":         "a job cannot be named here: " + kinds,
		"pod x":         "a pod cannot be named here: " + kinds,
		"pv/x":          "a volume cannot be named here: " + kinds,
		"pvc/":          `"pvc/" has no name: write pvc/NAME`,
		"pvc/a deploy/": `"deploy/" has no name: write deployment/NAME`,
		"pvc a pvc/b":   `"pvc/b" is not understood: ` + kinds,
		"Data":          `"Data" cannot be a name: names have lower-case letters, digits, '-' and '.'`,
		"pvc/a/b":       `"a/b" cannot be a name: names have lower-case letters, digits, '-' and '.'`,
	} {
		_, err := cli.References(strings.Fields(args), cli.Claim, cli.Deployment, cli.StatefulSet)
		require.EqualError(t, err, says, args)
		assert.Equal(t, cli.Usage, cli.ExitCodeOf(err), args)
	}
}

func TestOurOwnKindsHaveTheNamesThatKubectlHasForThem(t *testing.T) {
	for kind, file := range map[cli.Kind]string{
		cli.Move: "base/crds/lodestone.dev_volumemoves.yaml", cli.Replica: "base/crds/lodestone.dev_volumereplicas.yaml",
		cli.RemoteCluster: "base/crds/lodestone.dev_remoteclusters.yaml", cli.HomeCluster: "remote/crds/remote.lodestone.dev_homeclusters.yaml",
	} {
		content, err := os.ReadFile("../../deploy/" + file)
		require.NoError(t, err)
		var definition struct {
			Spec struct {
				Group string
				Names struct {
					Plural, Singular string
					ShortNames       []string
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(content, &definition))
		names, group := definition.Spec.Names, "."+definition.Spec.Group
		all := slices.Concat(names.ShortNames, []string{names.Plural, names.Singular, names.Plural + group, names.Singular + group})
		require.Greater(t, len(all), 3)
		for _, name := range all {
			assert.Equal(t, kind, cli.KindOf(name), name)
		}
	}
}

func TestACommandThatTakesOneObjectSaysWhichOneIsMissing(t *testing.T) {
	cmd := &cobra.Command{Use: "lose pvc/NAME | pv/NAME"}
	for args, want := range map[string]cli.Reference{
		"pvc data": {Kind: cli.Claim, Name: "data"}, "pv/v": {Kind: cli.Volume, Name: "v"}, "claim data": {Kind: cli.Claim, Name: "data"},
	} {
		got, err := cli.OneReference(cmd, strings.Fields(args), cli.Claim, cli.Volume)
		require.NoError(t, err, args)
		assert.Equal(t, want, got, args)
	}
	got, err := cli.OneReference(cmd, []string{"west"}, cli.RemoteCluster)
	require.NoError(t, err)
	assert.Equal(t, cli.Reference{Kind: cli.RemoteCluster, Name: "west"}, got, "where there is but one kind, it need not be said")
	for args, says := range map[string]string{
		"":            "say which claim or volume: it is missing; usage: lose pvc/NAME | pv/NAME",
		"pv":          `say which volume: the name is missing after "pv"; usage: lose pvc/NAME | pv/NAME`,
		"data":        `say what "data" is: write pvc/data or pv/data`,
		"pvc data v":  `"v" is one argument too many: the command takes one object at a time; usage: lose pvc/NAME | pv/NAME`,
		"pvc/a pvc/b": `"pvc/b" is one argument too many: the command takes one object at a time; usage: lose pvc/NAME | pv/NAME`,
	} {
		_, err := cli.OneReference(cmd, strings.Fields(args), cli.Claim, cli.Volume)
		require.EqualError(t, err, says, args)
		assert.Equal(t, cli.Usage, cli.ExitCodeOf(err), args)
	}
}

func TestClustersAreNamedOrAllAreMeant(t *testing.T) {
	for args, want := range map[string][]string{
		"": nil, "west": {"west"}, "remoteclusters": nil, "remotecluster west east": {"west", "east"},
	} {
		names, err := cli.RemoteClusters(strings.Fields(args))
		require.NoError(t, err, args)
		assert.Equal(t, want, names, args)
	}
	_, err := cli.RemoteClusters([]string{"pod/web"})
	assert.ErrorContains(t, err, "a pod cannot be named here: write remotecluster/NAME")
}
