package credentials

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
)

// otherWayTimeout bounds a try at home's own address, which the caller may not
// reach.
const otherWayTimeout = 5 * time.Second

// Accepted asks a cluster whether it takes a login for that of user, by the way
// that the caller reaches it and, if that says no, by home's: what stands between
// may pass tokens on but not certificates.
func Accepted(ctx context.Context, cluster *access.Cluster, found Found, user string) (bool, error) {
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

// accepted asks one API server whom it takes the bearer of a login for.
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

// refused says whether an error is that of credentials that are not taken; an
// API server may refuse a certificate before it answers any request.
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
