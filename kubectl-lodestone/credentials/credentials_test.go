package credentials

import (
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/clients"
)

func TestKubeconfigIsReadAsItWasWrittenAndTakenByLodestone(t *testing.T) {
	server := cli.Server{URL: "https://west:6443", CA: []byte("ca"), Name: "kubernetes"}
	content, err := Kubeconfig("west", "lodestone-home", server, Login{Token: "e30.eyJleHAiOjE3Njc0MDk0NDV9.sig"})
	require.NoError(t, err)
	found, err := Read(content)
	require.NoError(t, err)
	assert.Equal(t, server, found.Server)
	assert.Equal(t, "token", found.Kind())
	assert.Equal(t, time.Date(2026, 1, 3, 3, 4, 5, 0, time.UTC), found.Expires)
	_, err = clients.ParseKubeconfig(content)
	assert.NoError(t, err)
}

func TestTokensWithoutAnEndHaveNone(t *testing.T) {
	for name, token := range map[string]string{
		"no JWT":              "secret",
		"a payload of no end": "e30.e30.sig",
		"a broken payload":    "e30.%%.sig",
	} {
		t.Run(name, func(t *testing.T) { assert.Zero(t, tokenExpiry(token)) })
	}
}

func TestReadRefusesWhatIsNoKubeconfig(t *testing.T) {
	for name, content := range map[string]string{
		"no YAML":    "{",
		"no context": "apiVersion: v1\nkind: Config\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read([]byte(content))
			assert.Error(t, err)
		})
	}
}

func TestRequestNamesTheUserAndBelongsToTheKey(t *testing.T) {
	key, err := NewKey()
	require.NoError(t, err)
	content, name, err := Request(key, "lodestone:home:berlin", "lodestone:homes")
	require.NoError(t, err)
	block, _ := pem.Decode(content)
	require.NotNil(t, block)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	require.NoError(t, err)
	assert.NoError(t, request.CheckSignature())
	assert.Equal(t, "lodestone:home:berlin", request.Subject.CommonName)
	assert.Equal(t, []string{"lodestone:homes"}, request.Subject.Organization)

	_, again, err := Request(key, "lodestone:home:berlin", "lodestone:homes")
	require.NoError(t, err)
	assert.Equal(t, name, again, "a run that goes on finds the request of the one before")
	other, err := NewKey()
	require.NoError(t, err)
	_, differs, err := Request(other, "lodestone:home:berlin", "lodestone:homes")
	require.NoError(t, err)
	assert.NotEqual(t, name, differs)
	_, _, err = Request([]byte("no key"), "a", "b")
	assert.Error(t, err)
}
