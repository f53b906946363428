package agentrights

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

// ask asks the kubelet API of west's node with the token of an account that has no
// rights there: the program asks home whose it is and what that one may.
func ask(t *testing.T) {
	t.Helper()
	node, err := bed.Home.Client().CoreV1().Nodes().Get(t.Context(), fabric.WestNode, metav1.GetOptions{})
	require.NoError(t, err)
	guest, err := bed.Home.ServiceAccountConfig(t.Context(), metav1.NamespaceDefault, "default")
	require.NoError(t, err)
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/containerLogs/default/db/app", port), nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+guest.BearerToken)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, http.StatusForbidden, response.StatusCode)
}
