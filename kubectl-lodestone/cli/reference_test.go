package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	for args, says := range map[string]string{
		"job/x":         `"job/x" is not understood: name one of the kind pvc, deployment, statefulset`,
		"pod/x":         "a pod cannot be named here: name one of the kind pvc, deployment, statefulset",
		"pod x":         "a pod cannot be named here",
		"pvc/":          `"pvc/" has no name: write it as pvc/NAME`,
		"pvc a pvc/b":   `"pvc/b" is not understood`,
		"pvc/a deploy/": "has no name",
	} {
		_, err := cli.References(strings.Fields(args), cli.Claim, cli.Deployment, cli.StatefulSet)
		require.ErrorContains(t, err, says, args)
		assert.Equal(t, cli.Usage, cli.ExitCodeOf(err), args)
	}
}
