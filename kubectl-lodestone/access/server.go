package access

import (
	"fmt"
	"net"
	"net/url"

	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
)

// Server is where an API server is and how it is known.
type Server struct {
	URL string
	// CA is the certificate authority in PEM; empty: those that every system
	// trusts. Name is checked in the certificate in place of the URL's host if it
	// is not empty.
	CA   []byte
	Name string
}

// Server returns how this cluster's API server is reached. An address or an
// authority that is not empty takes the place of that of the user's kubeconfig.
func (c *Cluster) Server(address string, ca []byte) (Server, error) {
	config := rest.CopyConfig(c.Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return Server{}, outcome.Misuse("the certificate authority of context %q cannot be read: %w; correct the kubeconfig", c.Context, err)
	}
	server := Server{URL: config.Host, CA: config.CAData, Name: config.ServerName}
	if address != "" {
		server.URL, server.Name = address, ""
	}
	if ca != nil {
		server.CA = ca
	}
	parsed, err := url.Parse(server.URL)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" {
		return Server{}, outcome.Misuse("the address %q is not one of an API server: give --remote-server https://<host>:<port>", server.URL)
	}
	if config.Insecure && ca == nil {
		return Server{}, outcome.Misuse("the kubeconfig does not check the certificate of context %q, so credentials could go astray: put certificate-authority-data into it, or give --remote-ca-file", c.Context)
	}
	return server, nil
}

// Loopback says whether only programs of one machine reach the server.
func (s Server) Loopback() bool {
	parsed, err := url.Parse(s.URL)
	if err != nil {
		return false
	}
	ip := net.ParseIP(parsed.Hostname())
	return parsed.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// String returns the address for messages.
func (s Server) String() string { return fmt.Sprintf("%q", s.URL) }
