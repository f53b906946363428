package virtualclass_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

func TestCarries(t *testing.T) {
	for name, test := range map[string]struct {
		parameters map[string]string
		yes, no    []string
	}{
		"without the parameter nothing": {no: []string{"team", ""}},
		"an empty list nothing":         {parameters: map[string]string{keys.Carry: " , "}, no: []string{"team", ""}},
		"exact keys": {parameters: map[string]string{keys.Carry: "team, example.com/cost"},
			yes: []string{"team", "example.com/cost"}, no: []string{"teams", "tea", "example.com/costs", "example.com/"}},
		"keys that begin so": {parameters: map[string]string{keys.Carry: "backup.example.com/*"},
			yes: []string{"backup.example.com/daily"}, no: []string{"backup.example.org/daily", "my.backup.example.com/daily"}},
		"all, but what Kubernetes and Lodestone act upon": {parameters: map[string]string{keys.Carry: "*"},
			yes: []string{"team", "example.com/cost", "app.kubernetes.io/name", "notkubernetes.io/x"},
			no: []string{keys.Claim, keys.ClaimUID, keys.SelectedNode, keys.BetaStorageProvisioner, "kubernetes.io/x", "K8S.io/x", "storage.k8s.io/x",
				"remote.lodestone.dev/x", "kubectl.kubernetes.io/last-applied-configuration"}},
	} {
		t.Run(name, func(t *testing.T) {
			class, err := virtualclass.Parse(virtual(test.parameters))
			require.NoError(t, err)
			for _, key := range test.yes {
				assert.True(t, class.Carries(key), key)
			}
			for _, key := range test.no {
				assert.False(t, class.Carries(key), key)
			}
		})
	}
}

func TestParseRefusesPatternsThatCannotMatch(t *testing.T) {
	for pattern, says := range map[string]string{
		"*/daily":               "at most at their end",
		"team**":                "at most at their end",
		"team a":                "at most at their end",
		"lodestone.dev/*":       "never carried",
		"pv.kubernetes.io/x":    "never carried",
		"storage.k8s.io/*":      "never carried",
		"team, kubernetes.io/*": "never carried",
	} {
		_, err := virtualclass.Parse(virtual(map[string]string{keys.Carry: pattern}))
		require.Error(t, err, pattern)
		assert.Contains(t, err.Error(), says)
	}
}
