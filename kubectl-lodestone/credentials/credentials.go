// Package credentials makes and judges the kubeconfigs that home uses in
// a remote cluster.
package credentials

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
)

// Key is the key of a Secret that holds a kubeconfig. PendingKey holds the
// private key of a certificate that was asked for, until it is there.
const (
	Key        = "kubeconfig"
	PendingKey = "pending.key"
)

// Login is what home shows to a remote cluster: a token, or a certificate and
// its private key in PEM.
type Login struct {
	Token            string
	Certificate, PEM []byte
}

// Kubeconfig returns a kubeconfig that stands alone.
func Kubeconfig(cluster, user string, server access.Server, login Login) ([]byte, error) {
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{cluster: {
			Server: server.URL, CertificateAuthorityData: server.CA, TLSServerName: server.Name,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{user: {
			Token: login.Token, ClientCertificateData: login.Certificate, ClientKeyData: login.PEM,
		}},
		Contexts:       map[string]*clientcmdapi.Context{cluster: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: cluster,
	})
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig of cluster %s: %w", cluster, err)
	}
	return content, nil
}

// Found is what a kubeconfig holds.
type Found struct {
	Login
	Server access.Server
	// Expires is when the login ends; zero: never, or unknown.
	Expires time.Time
}

// Kind returns "token" or "certificate".
func (f Found) Kind() string {
	if f.Token == "" && len(f.Certificate) > 0 {
		return "certificate"
	}
	return "token"
}

// Read returns what a kubeconfig holds.
func Read(kubeconfig []byte) (Found, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return Found{}, fmt.Errorf("read the kubeconfig: %w", err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil || config.AuthInfos[current.AuthInfo] == nil {
		return Found{}, errors.New("the kubeconfig has no current context with a cluster and a user")
	}
	cluster, user := config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	found := Found{
		Login:  Login{Token: user.Token, Certificate: user.ClientCertificateData, PEM: user.ClientKeyData},
		Server: access.Server{URL: cluster.Server, CA: cluster.CertificateAuthorityData, Name: cluster.TLSServerName},
	}
	if found.Token != "" {
		found.Expires = tokenExpiry(found.Token)
	} else {
		found.Expires = certificateExpiry(found.Certificate)
	}
	return found, nil
}

// tokenExpiry reads when a service account token ends, without judging it: the
// API server does that.
func tokenExpiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Expiry int64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Expiry == 0 {
		return time.Time{}
	}
	return time.Unix(claims.Expiry, 0).UTC()
}

func certificateExpiry(data []byte) time.Time {
	block, _ := pem.Decode(data)
	if block == nil {
		return time.Time{}
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return certificate.NotAfter.UTC()
}
