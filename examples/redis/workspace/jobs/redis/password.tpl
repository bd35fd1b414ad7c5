{{ getSecret "password" }}
