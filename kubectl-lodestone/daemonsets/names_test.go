package daemonsets

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDaemonSetsAreNamedInOneOfTheseWays(t *testing.T) {
	set := func(namespace, name string) appsv1.DaemonSet {
		return appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	there := []appsv1.DaemonSet{set("kube-system", "proxy"), set("logs", "agent"), set("metrics", "agent")}
	for args, want := range map[string]string{
		"":                             "proxy agent agent",
		"daemonsets":                   "proxy agent agent",
		"kube-system/proxy":            "proxy",
		"ds/proxy":                     "proxy",
		"daemonset proxy":              "proxy",
		"proxy logs/agent":             "proxy agent",
		"logs/agent metrics/agent":     "agent agent",
		"agent":                        `several DaemonSets are called "agent": name logs/agent or metrics/agent`,
		"kube-system/prxy":             `there is no daemonset "kube-system/prxy"; there are: kube-system/proxy, logs/agent, metrics/agent`,
		"prxy":                         `there is no daemonset "prxy"; there are: kube-system/proxy, logs/agent, metrics/agent`,
		"deployment/proxy":             "a deployment cannot be named here: write daemonset/NAME",
		"kube-system/proxy/containers": `"kube-system/proxy/containers" is not understood: write daemonset/NAME, or NAMESPACE/NAME`,
	} {
		names, err := parse(strings.Fields(args))
		var chosen []appsv1.DaemonSet
		if err == nil {
			chosen, err = named(there, names)
		}
		if err != nil {
			assert.Equal(t, want, err.Error(), args)
			continue
		}
		var got []string
		for _, set := range chosen {
			got = append(got, set.Name)
		}
		assert.Equal(t, want, strings.Join(got, " "), args)
	}
	names, err := parse([]string{"agent"})
	require.NoError(t, err)
	_, err = named(nil, names)
	require.EqualError(t, err, `there is no daemonset "agent", nor any other: give another -n or --context if it is elsewhere`)
}
