// Package credentials makes and checks the kubeconfigs with which home logs in to a remote cluster:
// Kubeconfig writes one, Read reads one, Accepted asks the remote cluster whether it accepts a
// login. Private keys and certificate requests are in certificate.go.
package credentials

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

// Key is the key of a Secret that holds a kubeconfig. PendingKey holds the private key of a
// requested certificate until the certificate is issued.
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

// Kubeconfig returns a kubeconfig that refers to no other files.
func Kubeconfig(cluster, user string, server cli.Server, login Login) ([]byte, error) {
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
	Server cli.Server
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
		Server: cli.Server{URL: cluster.Server, CA: cluster.CertificateAuthorityData, Name: cluster.TLSServerName},
	}
	if found.Token != "" {
		found.Expires = tokenExpiry(found.Token)
	} else {
		found.Expires = certificateExpiry(found.Certificate)
	}
	return found, nil
}

// tokenExpiry reads when a service account token ends. It does not verify the token: the API server
// does.
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

// otherWayTimeout limits the attempt at the address that home uses, which the caller may be unable
// to reach.
const otherWayTimeout = 5 * time.Second

// Accepted asks a cluster whether it accepts a login as that of user. It uses the caller's address
// of the API server first and, if that one refuses the login, the address in found, home's: a proxy
// before the first one may pass tokens on but not certificates.
func Accepted(ctx context.Context, cluster *cli.Cluster, found Found, user string) (bool, error) {
	if found.Token == "" {
		if _, err := tls.X509KeyPair(found.Certificate, found.PEM); err != nil {
			return false, nil //nolint:nilerr // a certificate that is not one of this key is not accepted
		}
	}
	config := rest.AnonymousClientConfig(cluster.Config)
	config.Timeout, config.UserAgent = cluster.Config.Timeout, cluster.Config.UserAgent
	ok, err := accepted(ctx, config, found.Login, user)
	if err != nil {
		return false, cluster.Explain("try home's credentials", err)
	}
	if ok || found.Server.URL == config.Host {
		return ok, nil
	}
	other := &rest.Config{
		Host: found.Server.URL, Timeout: otherWayTimeout, UserAgent: config.UserAgent,
		TLSClientConfig: rest.TLSClientConfig{CAData: found.Server.CA, ServerName: found.Server.Name},
	}
	ok, err = accepted(ctx, other, found.Login, user)
	return ok && err == nil, nil
}

// accepted asks one API server which user it takes the holder of a login for.
func accepted(ctx context.Context, config *rest.Config, login Login, user string) (bool, error) {
	config.BearerToken, config.CertData, config.KeyData = login.Token, login.Certificate, login.PEM
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false, nil //nolint:nilerr // what no client can use is not accepted
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if refused(err) {
		return false, nil
	}
	return err == nil && review.Status.UserInfo.Username == user, err
}

// refused reports whether an error means that credentials are not accepted; an API server may
// refuse a certificate before it answers any request.
func refused(err error) bool {
	var alert tls.AlertError
	var operation *net.OpError
	var unknown x509.UnknownAuthorityError
	switch {
	case err == nil, errors.As(err, &unknown):
		return false
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err), errors.As(err, &alert):
		return true
	}
	return errors.As(err, &operation) && operation.Op == "remote error"
}
