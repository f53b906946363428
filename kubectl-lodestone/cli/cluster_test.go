package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestClusterIDIsReadFromTheProvisionersFlags(t *testing.T) {
	for name, test := range map[string]struct {
		command, args []string
		want          string
	}{
		"no flag":                 {args: []string{"--leader-elect=true"}},
		"with an equals sign":     {args: []string{"-v=2", "--cluster-id=berlin"}, want: "berlin"},
		"as the next argument":    {args: []string{"--cluster-id", "berlin", "-v=2"}, want: "berlin"},
		"in the command":          {command: []string{"/lodestone-provisioner", "--cluster-id=berlin"}, want: "berlin"},
		"empty, for the default":  {args: []string{"--cluster-id="}},
		"last, without its value": {args: []string{"--cluster-id"}},
		"not a flag":              {args: []string{"cluster-id=berlin"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := corev1.PodSpec{Containers: []corev1.Container{{Command: test.command, Args: test.args}}}
			assert.Equal(t, test.want, clusterID(pod))
		})
	}
}

func TestDefaultIDIsTheBeginningOfTheUID(t *testing.T) {
	assert.Equal(t, "0b9a6d0e", DefaultID("0b9a6d0e-1111-2222"))
	assert.Equal(t, "short", DefaultID("short"))
}

func TestRightIsWrittenAsKubectlTakesIt(t *testing.T) {
	assert.Equal(t, "create serviceaccounts/token -n shop", Right{Verb: "create", Resource: "serviceaccounts/token",
		Namespace: "shop"}.String())
	assert.Equal(t, "update remoteclusters.lodestone.dev/west", Right{Verb: "update", Group: "lodestone.dev", Resource: "remoteclusters",
		Name: "west"}.String())
}
