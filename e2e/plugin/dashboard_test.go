package plugin

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// opened starts the dashboard and returns its address. At the end of the test it is interrupted, and
// must then end well.
func opened(t *testing.T, args ...string) string {
	t.Helper()
	testbed.Require(t)
	c := command(context.Background(), "", append([]string{"dashboard"}, args...)...)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	var stderr strings.Builder
	c.Stderr = &stderr
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		require.NoError(t, c.Process.Signal(os.Interrupt))
		require.NoError(t, c.Wait(), stderr.String())
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "it prints an address")
	return strings.TrimSpace(line)
}

// shownBy returns what a dashboard shows, nil if it does not answer well.
func shownBy(t *testing.T, address string) map[string]any {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"status.json", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	var shown map[string]any
	if response.StatusCode != http.StatusOK || json.NewDecoder(response.Body).Decode(&shown) != nil {
		return nil
	}
	return shown
}

// has reports whether a list of a status has an element whose field has a value.
func has(shown map[string]any, list, field, value string) bool {
	elements, _ := shown[list].([]any)
	for _, element := range elements {
		if one, _ := element.(map[string]any); one[field] == value {
			return true
		}
	}
	return false
}

func TestTheDashboardShowsWhatStatusShowsAndKeepsUp(t *testing.T) {
	testbed.NotInShort(t)
	peered(t)
	namespace := openNamespace(t)
	volumeInWest(t, namespace, "data")
	podInWest(t, namespace, "web", "data")
	address := opened(t)

	await.Until(t, "the dashboard shows what status -o json prints", func() bool {
		var printed map[string]any
		require.NoError(t, json.Unmarshal([]byte(lodestone(t, "status", "-o", "json").ends(t, done).out), &printed))
		shown := shownBy(t, address)
		for _, one := range []map[string]any{printed, shown} {
			delete(one, "clusters") // heartbeats in them change all the time
		}
		return reflect.DeepEqual(printed, shown)
	}, func() any { return shownBy(t, address) })
	shown := shownBy(t, address)
	assert.True(t, has(shown, "clusters", "name", "west"))
	assert.True(t, has(shown, "volumes", "cluster", "west"))
	assert.True(t, has(shown, "pods", "name", "web"))
	assert.NotEmpty(t, shown["homeID"])

	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), fabric.NewClaim(namespace, "late", fabric.Class))
	await.Until(t, "a claim that was made later is shown", func() bool { return has(shownBy(t, address), "volumes", "claim", "late") })

	// What waits is explained while a page is open.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"events", nil)
	require.NoError(t, err)
	page, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer page.Body.Close()
	await.Until(t, "it is said why it waits", func() bool { return has(shownBy(t, address), "waiting", "name", "late") })

	endPod(t, namespace, "web")
	await.Until(t, "a pod that is gone is not shown", func() bool { return !has(shownBy(t, address), "pods", "name", "web") })
}

func TestTheDashboardShowsATenantItsNamespace(t *testing.T) {
	testbed.Require(t)
	namespace, other := testbed.Namespace(t, bed.Home), testbed.Namespace(t, bed.Home)
	for _, n := range []string{namespace, other} {
		must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(n), fabric.NewClaim(n, "data-"+n, fabric.Class))
	}
	for _, args := range [][]string{
		{"create", "role", "looker", "-n", namespace, "--verb=get,list,watch", "--resource=pods,persistentvolumeclaims"},
		{"create", "rolebinding", "looker", "-n", namespace, "--role=looker", "--user=guest"},
		{"create", "clusterrole", "looker-" + namespace, "--verb=get,list,watch", "--resource=storageclasses.storage.k8s.io"},
		{"create", "clusterrolebinding", "looker-" + namespace, "--clusterrole=looker-" + namespace, "--user=guest"},
	} {
		must.Kubectl(t, bed.Home, "", args...)
		if strings.HasPrefix(args[1], "cluster") {
			t.Cleanup(func() {
				must.Kubectl(t, bed.Home, "", "delete", args[1], args[2])
			})
		}
	}
	address := opened(t, "--context", "home-guest", "-n", namespace)
	await.Until(t, "it shows the claim", func() bool { return has(shownBy(t, address), "volumes", "claim", "data-"+namespace) })
	shown := shownBy(t, address)
	assert.False(t, has(shown, "volumes", "claim", "data-"+other))
	for _, resource := range []string{"remoteclusters", "nodes", "persistentvolumes", "volumemoves"} {
		assert.Contains(t, shown["unread"], resource)
	}
	assert.NotContains(t, shown["unread"], "pods")
}

func TestTheDashboardIsForThoseWhoMaySeeSomething(t *testing.T) {
	testbed.Require(t)
	r := lodestone(t, "dashboard", "--context", "home-guest").ends(t, failed)
	assert.Contains(t, r.stderr, "ask its administrator")
	taken := opened(t)
	host, _, _ := strings.Cut(strings.TrimPrefix(taken, "http://"), "/")
	_, port, _ := strings.Cut(host, ":")
	r = lodestone(t, "dashboard", "--port", port).ends(t, failed)
	assert.Contains(t, r.stderr, "give another --port")
}
